"""The processes of a run: participants, and those that take the places of the dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawValue
from typing import Callable, NamedTuple

from tests.cluster.participants import Participant, Surroundings
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder

PLACES = 4


class _Member(NamedTuple):
    """A participant's process."""

    pid: int
    who: str


class Crew:
    """Participants, each in a process of its own, and as many again for those that are killed.

    Args:
        surroundings: What they share.
        endpoints: For each of them, where it finds the members.
        seed: Of their choices.
    """

    def __init__(
        self, surroundings: Surroundings, endpoints: Sequence[Sequence[str]], *, seed: int
    ) -> None:
        self._surroundings = surroundings
        self._endpoints = endpoints
        self._seed = seed
        self._recorder = Recorder(surroundings.history)
        self._is_over = RawValue("b", 0)
        self._started = 0
        self._members = [self._start(slot) for slot in range(len(endpoints))]
        self.size = len(self._members)

    def fork(self, work: Callable[[Callable[[], bool]], object]) -> int:
        """Run something beside them; it is told when it is over."""
        parent = os.getpid()
        return fork(lambda: work(lambda: bool(self._is_over.value) or os.getppid() != parent))

    def replace(self, slot: int) -> str:
        """KILL a participant and start another in its place; returns who died."""
        member = self._kill(slot)
        self._members[slot] = self._start(slot)
        return member.who

    def finish(self, *, killed: int) -> None:
        """KILL some and let the others end by themselves: every wait has an end once all is well.

        Args:
            killed: How many.
        """
        for slot in range(killed):
            self._kill(slot)
        self._is_over.value = 1
        for pid, who in self._members[killed:]:
            code = ending(pid)
            self._recorder.note("died", who)
            if code != 0:
                self._recorder.note("failed", who, "hung" if code < 0 else "raised")

    def _start(self, slot: int) -> _Member:
        self._started += 1
        number = self._started
        # Names are unique within a place only.
        place, name = f"host-{number % PLACES}", f"p{number // PLACES}"

        def work(is_over: Callable[[], bool]) -> None:
            seed = self._seed * 1_000_000 + number
            endpoints = self._endpoints[slot]
            Participant(place, name, endpoints, self._surroundings, seed=seed).take_turns(is_over)

        return _Member(self.fork(work), f"{place}/{name}")

    def _kill(self, slot: int) -> _Member:
        member = self._members[slot]
        os.kill(member.pid, signal.SIGKILL)
        ending(member.pid)
        self._recorder.note("died", member.who)
        self._recorder.note("killed", member.who)
        return member
