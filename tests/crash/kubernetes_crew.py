"""The processes of a campaign on Kubernetes: participants, commands, and who replaces the dead."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable, Sequence
from multiprocessing.sharedctypes import RawValue
from pathlib import Path

from tests.crash.kubernetes_participants import Participant, Place, run_once
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder
from tests.kit.support import Cli


class Crew:
    """Participants, each in a process of its own, and as many again for those that die.

    Args:
        places: Where they are, one after the other.
        servers: At how many servers those places are, likewise.
        names: The pool's resources.
        size: How many ask the engine itself.
        runs: How many commands there are at a time.
        token_file: Of all.
        seed: Of their choices.

    Attributes:
        places: As given.
        size: As given.
        runs: As given.
        ttl: Of what they ask for, seconds.
    """

    def __init__(
        self,
        places: Sequence[Place],
        servers: int,
        names: Sequence[str],
        *,
        size: int,
        runs: int,
        token_file: Path,
        seed: int,
    ) -> None:
        self.places, self.size, self.runs = places, size, runs
        self.ttl = places[0].habits.ttl
        self._servers, self._names, self._seed = servers, names, seed
        self._token_file = token_file
        self._recorder = Recorder(places[0].history)
        self._is_over = RawValue("b", 0)
        self._started = 0
        self._members: list[tuple[int, str]] = []
        self._running: list[tuple[int, str] | None] = [None] * runs

    def start(self) -> None:
        """Start all of them."""
        self._members = [self._start(slot) for slot in range(self.size)]
        self.replace_dead()

    def set_token(self, token: str) -> None:
        """Have all show another token from here on."""
        new = self._token_file.with_suffix(".new")
        new.write_text(token)
        new.replace(self._token_file)

    def places_at(self, server: int) -> list[str]:
        """The names of the places whose way is to a server."""
        return [each.name for at, each in enumerate(self.places) if at % self._servers == server]

    def pid(self, slot: int) -> int:
        return self._members[slot][0]

    def who(self, slot: int) -> str:
        return self._members[slot][1]

    def pid_of_run(self, slot: int) -> int | None:
        running = self._running[slot]
        return None if running is None else running[0]

    def keeper(self, rng: random.Random) -> int | None:
        """A keeper of one of the places, if there is one now, about to be killed or stopped."""
        pids = self._keepers()
        if not pids:
            return None
        for place in self.places:
            self._recorder.note("hindered", place.name)
        return rng.choice(pids)

    def all_pids(self) -> list[int]:
        """Everybody's who would stand still with the machine."""
        running = [each[0] for each in self._running if each is not None]
        return [*(pid for pid, _ in self._members), *running, *self._keepers()]

    def note_unwatched(self, slots: Iterable[int]) -> None:
        """Write down that nobody ends some commands when their time is over, from here on."""
        for slot in slots:
            running = self._running[slot]
            if running is not None:
                self._recorder.note("orphaned", running[1])
                self._recorder.note("hindered", running[1].partition("/")[0])

    def kill(self, slot: int) -> None:
        """KILL a participant and start another in its place."""
        self._end(slot)
        self._members[slot] = self._start(slot)

    def kill_run(self, slot: int) -> bool:
        """KILL a command; another takes its place."""
        running = self._running[slot]
        if running is None:
            return False
        self._recorder.note("orphaned", running[1])
        os.kill(running[0], signal.SIGKILL)
        return True

    def replace_dead(self) -> None:
        """Start a command wherever one has ended."""
        for slot, running in enumerate(self._running):
            if running is None or os.waitid(
                os.P_PID, running[0], os.WEXITED | os.WNOHANG | os.WNOWAIT
            ):
                if running is not None:
                    ending(running[0])
                self._running[slot] = self._start_run(slot)

    def finish(self, *, killed: int) -> None:
        """KILL some and let the others end by themselves: every wait has an end once all is well.

        Args:
            killed: How many participants, and as many commands.
        """
        for slot in range(killed):
            self._end(slot)
            if slot < self.runs:
                self.kill_run(slot)
        self._is_over.value = 1
        for pid, who in self._members[killed:]:
            code = ending(pid)
            self._recorder.note("died", who)
            if code != 0:
                self._recorder.note("failed", who, "hung" if code < 0 else "raised")
        for running in self._running:
            if running is not None:
                ending(running[0])
        for pid in self._keepers():
            os.kill(pid, signal.SIGKILL)

    def _keepers(self) -> list[int]:
        return [pid for each in self.places for pid in Cli(each.state_dir, each.folder).keepers()]

    def _start(self, slot: int) -> tuple[int, str]:
        self._started += 1
        place, name = self.places[slot % len(self.places)], f"p{self._started}"
        seed, parent = self._seed * 1_000_000 + self._started, os.getpid()

        def work() -> None:
            participant = Participant(place, name, self._names, seed=seed)
            participant.take_turns(lambda: bool(self._is_over.value) or os.getppid() != parent)

        return fork(work), f"{place.name}/{name}"

    def _start_run(self, slot: int) -> tuple[int, str]:
        self._started += 1
        place, who = self.places[-1 - slot % 2], f"run-{self._started}"
        seed = self._seed * 1_000_000 + self._started
        handle = f"{place.name}/{who}.1"
        return fork(lambda: run_once(place, handle, seed=seed)), handle

    def _end(self, slot: int) -> None:
        pid, who = self._members[slot]
        os.kill(pid, signal.SIGKILL)
        ending(pid)
        self._recorder.note("died", who, "killed")
