"""What goes wrong in a campaign on Kubernetes, all of it undone at the end.

Servers have one fault at a time, so that one always answers; what happens to links, participants,
tokens and etcd's past goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import Callable

from tests.crash.kubernetes_crew import Crew
from tests.kit.history import Recorder
from tests.kit.kubernetes.accounts import Account
from tests.kit.kubernetes.control_plane import ControlPlane
from tests.kit.relay import Relay
from tests.kit.waits import PATIENCE_SECONDS

_TOKEN_SECONDS = 40.0

Undo = Callable[[], object]


class Faults:
    """The faults of a campaign.

    Args:
        crew: The participants.
        relays: The ways to the servers, one for each place.
        servers: The servers; None where they are let alone.
        account: Whose token is rotated.
        recorder: Told who is disturbed.
        rng: Of chance.

    Attributes:
        counts: What has happened so far, how often.
        lost: The answers that were lost, by the method of the request.
    """

    def __init__(
        self,
        crew: Crew,
        relays: Sequence[Relay],
        servers: ControlPlane | None,
        account: Account,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._crew, self._relays, self._servers = crew, relays, servers
        self._account, self._recorder, self._rng = account, recorder, rng
        self._undoing: list[tuple[float, Undo]] = []
        self._server_at = self._other_at = self._rotate_at = 0.0

    # All of it

    def go_on(
        self, seconds: float, *, every: tuple[float, float], is_enough: Callable[[], bool]
    ) -> None:
        """Have faults for so long, and then none.

        Args:
            seconds: For how long at least.
            every: So long after each that isn't of a server another comes, at least and at most.
            is_enough: Whether enough has happened by then; a busy machine needs longer.
        """
        end = time.monotonic() + seconds
        self._other_at = time.monotonic() + self._rng.uniform(*every)
        self._server_at = time.monotonic() + self._rng.uniform(2, 4)
        try:
            while time.monotonic() < end or not is_enough():
                assert time.monotonic() < end + PATIENCE_SECONDS, "too little has happened"
                self._undo(time.monotonic())
                if self._servers is not None and time.monotonic() >= self._server_at:
                    lasts = self._of_a_server(self._servers)
                    self._server_at = time.monotonic() + lasts + self._rng.uniform(4, 9)
                if time.monotonic() >= self._other_at:
                    self._other()
                    self._other_at = time.monotonic() + self._rng.uniform(*every)
                if time.monotonic() >= self._rotate_at:
                    self._rotate()
                    self._rotate_at = time.monotonic() + _TOKEN_SECONDS / 2
                self._crew.replace_dead()
                time.sleep(0.02)
        finally:
            self._undo(float("inf"))
            if self._servers is not None:
                self._servers.wait()
            self._crew.set_token(self._account.token())

    def lose_answers(self, share: float) -> None:
        """Have so many of all answers be lost from here on, those of watches among them."""
        for number, relay in enumerate(self._relays):
            chance, drawn = random.Random(number), {0: False}

            def loses(
                request: int,
                path: str,
                relay: Relay = relay,
                chance: random.Random = chance,
                drawn: dict[int, bool] = drawn,
            ) -> bool:
                if request not in drawn:
                    drawn[request] = chance.random() < share
                    if drawn[request]:
                        is_watch = "watch=1" in path
                        self.lost["watch" if is_watch else relay.methods[request - 1]] += 1
                return drawn[request]

            relay.listen(after=loses if share else None)

    def _undo(self, now: float) -> None:
        due = [each for each in self._undoing if each[0] <= now]
        self._undoing = [each for each in self._undoing if each[0] > now]
        for _, undo in sorted(due, key=lambda each: each[0]):
            undo()

    def _later(self, seconds: float, undo: Undo) -> None:
        self._undoing.append((time.monotonic() + seconds, undo))

    # Of servers

    def _of_a_server(self, servers: ControlPlane) -> float:
        number = self._rng.randrange(len(servers.endpoints))
        fault = self._rng.choice(("kill", "end", "stop", "lag"))
        lasts = self._rng.uniform(1.0, 8.0)
        self.counts[f"server {fault}"] += 1
        places = self._crew.places_at(number)
        if fault == "lag":
            servers.wires[number].late_seconds = self._rng.uniform(0.2, 2.0)
            self._disturb(lasts, places, lambda: _keep_up(servers, number), extra=2.0)
        elif fault == "stop":
            servers.signal(number, signal.SIGSTOP)
            self._disturb(lasts, places, lambda: servers.signal(number, signal.SIGCONT), extra=1.0)
        else:
            if fault == "end":
                servers.signal(number, signal.SIGTERM)
            else:
                servers.kill(number)
            self._disturb(lasts, places, lambda: _restart(servers, number), extra=8.0)
            lasts += 8.0
        return lasts

    def _disturb(self, lasts: float, places: Sequence[str], undo: Undo, *, extra: float) -> None:
        """Write down that places are disturbed, and that they aren't a while after it was undone.

        Args:
            lasts: For how long, in seconds.
            places: Which.
            undo: Undoes it.
            extra: What a server takes from then on until it answers.
        """
        for place in places:
            self._recorder.note("disturbed", place)
        self._later(lasts, undo)
        for place in places:
            self._later(lasts + extra, lambda place=place: self._recorder.note("calm", place))  # type: ignore[misc]

    # Of all else

    def _other(self) -> None:
        name, fault = self._rng.choice(
            [
                *[("participant killed", self._kill_participant)] * 3,
                *[("participant stopped", self._stop_participant)] * 2,
                ("run killed", self._kill_run),
                ("run stopped", self._stop_run),
                ("keeper killed", self._kill_keeper),
                ("keeper stopped", self._stop_keeper),
                *[("watches cut", self._cut_watches)] * 2,
                ("link cut", self._cut_link),
                *([("etcd compacted", self._compact)] if self._servers else []),
                *(
                    [("all asleep", self._sleep)]
                    if self._servers and self._rng.random() < 0.3
                    else []
                ),
            ]
        )
        if fault() is not False:
            self.counts[name] += 1

    def _kill_participant(self) -> None:
        self._crew.kill(self._rng.randrange(self._crew.size))

    def _stop_participant(self) -> object:
        slot = self._rng.randrange(self._crew.size)
        return self._stop(self._crew.pid(slot), self._crew.who(slot), self._for_a_while())

    def _kill_run(self) -> object:
        return self._crew.kill_run(self._rng.randrange(self._crew.runs))

    def _stop_run(self) -> object:
        """Stop what has a command: for long its own time ends, and nobody is there to say so."""
        slot, seconds = self._rng.randrange(self._crew.runs), self._for_a_while()
        if seconds > self._crew.ttl / 10:
            self._crew.note_unwatched([slot])
        return self._stop(self._crew.pid_of_run(slot), "", seconds)

    def _kill_keeper(self) -> object:
        return _signal(self._crew.keeper(self._rng), signal.SIGKILL)

    def _stop_keeper(self) -> object:
        return self._stop(self._crew.keeper(self._rng), "", self._for_a_while())

    def _stop(self, pid: int | None, who: str, seconds: float) -> bool:
        if not _signal(pid, signal.SIGSTOP):
            return False
        if who:
            self._recorder.note("disturbed", who)

        def go_on() -> None:
            _signal(pid, signal.SIGCONT)
            if who:
                self._recorder.note("calm", who)

        self._later(seconds, go_on)
        return True

    def _for_a_while(self) -> float:
        """A time for which somebody is stopped: some outlive what they hold, some don't."""
        return self._rng.uniform(0.1, 1.6) * self._crew.ttl

    def _sleep(self) -> None:
        """Have everything stand still for longer than a ttl, as on a machine that sleeps."""
        pids = self._crew.all_pids()
        self._crew.note_unwatched(range(self._crew.runs))
        places = self._crew.places_at(0) + self._crew.places_at(1)
        for place in places:
            self._recorder.note("disturbed", place)
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        time.sleep(self._rng.uniform(0.8, 1.6) * self._crew.ttl)
        for pid in pids:
            _signal(pid, signal.SIGCONT)
        for place in places:
            self._recorder.note("calm", place)

    def _cut_watches(self) -> object:
        relay = self._rng.choice(self._relays)
        return bool(relay.end(lambda path: "watch=1" in path))

    def _cut_link(self) -> None:
        number = self._rng.randrange(len(self._relays))
        relay = self._relays[number]
        relay.cut()
        self._disturb(
            self._rng.uniform(0.5, 6.0), [self._crew.places[number].name], relay.mend, extra=1.0
        )

    def _rotate(self) -> None:
        """Have everybody show another token; that before is none any more soon after."""
        if self._servers is None:
            token = self._account.token()
        else:
            token = self._account.short_token(_TOKEN_SECONDS)
        self._crew.set_token(token)
        self.counts["token rotated"] += 1

    def _compact(self) -> None:
        assert self._servers is not None
        self._servers.etcd.compact()


def _signal(pid: int | None, signum: int) -> bool:
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
        return True
    return False


def _keep_up(servers: ControlPlane, number: int) -> None:
    servers.wires[number].late_seconds = 0.0


def _restart(servers: ControlPlane, number: int) -> None:
    servers.kill(number)
    servers.start(number)
