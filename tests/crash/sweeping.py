"""Sweeps: something is killed at each of its calls into the system, while others go on."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Callable

from leasectl.backends.contract import Patience
from leasectl.http.http1 import Target
from leasectl.http.messages import Incoming
from leasectl.http.no_answer import NoAnswer
from leasectl.http.transport import Sending
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Request, whole
from leasectl.pools import admin
from leasectl.system.process import this_process
from tests.crash.contenders import CONTENDER, contention
from tests.kit.forking import ending, fork, leasectl
from tests.kit.history import Recorder, read_history, violations
from tests.kit.invariants import Told, broken_invariants
from tests.kit.killing import EVERY_KILL, kill_at
from tests.kit.support import Cli

CAPACITY = 3
# That often in a row it must have come to its end before the sweep believes that it was the end:
# how many calls a command makes depends on how long it waits.
UNHARMED = 3
LONGEST_SWEEP = 3000


class Sweep:
    """A state directory on which processes are killed.

    Args:
        cli: Whose state directory it is.
        tmp_path: Where output and history go.
        backend: Where the pool "T" is made.
        settings: How to talk to that, as a record has it.
        capacity: Of that pool.

    Attributes:
        kills: How many there have been.
        kept: The ids of handles that are to go on from one kill to the next.
        told: What has been read of its events.
    """

    def __init__(
        self,
        cli: Cli,
        tmp_path: Path,
        *,
        backend: str = "local:",
        settings: str = "",
        capacity: int = CAPACITY,
    ) -> None:
        self.cli = cli
        self._backend, self._settings = backend, settings
        self.output = tmp_path / "output"
        self.history = tmp_path / "history"
        self.recorder = Recorder(self.history)
        self.kills = 0
        self.kept: set[str] = set()
        self.told = Told()
        with self.service() as service:
            service.pools.create_pool("T", [f"T--{n}" for n in range(capacity)])

    def service(self) -> AbstractContextManager[Service]:
        """The state directory, beside the command that is killed."""
        return self.cli.service(owner="sweep@host", backend=self._backend, settings=self._settings)

    def keep_a_keeper(self) -> None:
        """Give it something to do all the time, so that it isn't started for each kill."""
        with self.cli.service(owner="sweep@host") as service:
            service.pools.create_pool("kept", ["kept"])
            self.kept.add(self.acquire(service, Request("kept"), guarded=True))

    def acquire(self, service: Service, request: Request, *, guarded: bool = False) -> str:
        """Take a lease beside the command that is killed; returns the handle's id."""
        guard = this_process() if guarded else None
        handle = acquire(service, request, patience=Patience(), guard=guard)
        announce(service, handle)
        return handle.id

    def kill_everywhere(
        self, arguments: Callable[[], list[str]], *, stride: int = 1, at_least: int = 0
    ) -> None:
        """Run a command again and again, and KILL it at its 1st, 2nd, 3rd, … event.

        Args:
            arguments: Called before each run, for the command's arguments.
            stride: As for `kill_each`.
            at_least: As for `kill_each`.
        """

        def attempt(number: int) -> int:
            args = arguments()
            code = ending(fork(lambda: self._command(number, args)))
            self.check(f"{args} killed at event {number}")
            return code

        self.kill_each(attempt, stride=stride, at_least=at_least)

    def kill_each(
        self, attempt: Callable[[int], int], *, stride: int = 1, at_least: int = 0
    ) -> None:
        """Try something again and again until it is no longer killed.

        Args:
            attempt: Given the number of the event at which to KILL, does it, checks what has
                become of it, and returns how it ended.
            stride: 3 for every third event, on each version of Python another third. All events
                on each version with LEASECTL_TEST_EVERY_KILL=1.
            at_least: Take more of the events until the whole test has had so many kills.
        """
        stride = 1 if EVERY_KILL else stride
        before = self.kills
        for turn in range(stride):
            self._kill_each(attempt, 1 + (sys.version_info[1] + turn) % stride, stride)
            if self.kills >= max(before + 1, at_least):
                return
        raise AssertionError(f"only {self.kills - before} kills, {self.kills} in the whole test")

    def _kill_each(self, attempt: Callable[[int], int], first: int, stride: int) -> None:
        unharmed = 0
        for number in range(first, LONGEST_SWEEP, stride):
            code = attempt(number)
            assert code in (0, -signal.SIGKILL), f"event {number}: {code}, {self.said()}"
            unharmed = unharmed + 1 if code == 0 else 0
            self.kills += code != 0
            if unharmed == UNHARMED:
                return
        raise AssertionError(f"still being killed after {LONGEST_SWEEP} events")

    def check(self, when: str) -> None:
        """Let one more command run, and see that all is well; then give back what is left."""
        self.next_command(when)
        self.give_back()

    def next_command(self, when: str) -> None:
        """Let one more command run, and see that all is well."""
        with self.service() as service:
            admin.show(service)
        broken = broken_invariants(self.cli.state_dir, told=self.told)
        assert broken == [], f"{when}: {broken}"

    def give_back(self) -> None:
        """Release what is held, but for what the others hold and what is kept."""
        with self.service() as service:
            for handle in service.handles.active():
                if handle.owner == CONTENDER or handle.id in self.kept:
                    continue
                if handle.request.type == "T":
                    # Whoever got it and lived holds it, until we give it back.
                    self.recorder.write("granted", handle.id, handle.leases)
                    self.recorder.write("releasing", handle.id, handle.leases)
                release(service, whole(handle))

    def _command(self, number: int, args: list[str]) -> None:
        kill_at(number)
        leasectl(self.cli.state_dir, self.output, *args)

    def said(self) -> str:
        """What the last command said on stderr."""
        path = Path(f"{self.output}.err")
        return path.read_text() if path.exists() else ""


@contextmanager
def among_contenders(sweep: Sweep) -> Iterator[None]:
    """Have others take leases; at the end the history is checked, and that all is free."""
    choices = [
        lambda rng: Request("T", count=rng.randint(1, 2)),
        lambda rng: Request("T", name=f"T--{rng.randrange(CAPACITY)}"),
    ]
    with contention(sweep.cli.state_dir, sweep.history, choices):
        yield
    sweep.check("at the end")
    assert set(sweep.cli.held().values()) == sweep.kept
    history = read_history(sweep.history)
    assert violations(history, capacity=CAPACITY) == []
    print(f"{sweep.kills} kills, {sum(event.kind == 'granted' for event in history)} leases")


def kill_at_request(number: int, *, after: bool) -> None:
    """KILL this process at its request of that number: before it is sent or when it is answered.

    Of requests by `leasectl.http`, streams among them.
    """
    numbers = itertools.count(1)

    def send() -> bool:
        is_it = next(numbers) == number
        if is_it and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        return is_it

    _have_told(send, lambda: os.kill(os.getpid(), signal.SIGKILL))


def lose_answer(number: int, *, seconds: float, mark: Path) -> None:
    """Have the request of that number be carried out, its answer be lost, and then nobody there.

    Args:
        number: From 1.
        seconds: For how long, from then on, no other gets through.
        mark: A file that is made then.
    """
    numbers, back_at = itertools.count(1), 0.0

    def send() -> bool:
        if time.monotonic() < back_at:
            raise NoAnswer("away", sent=False)
        return next(numbers) == number

    def lose() -> None:
        nonlocal back_at
        back_at = time.monotonic() + seconds
        mark.touch()
        raise NoAnswer("lost")

    _have_told(send, lose)


def _have_told(send: Callable[[], bool], answered: Callable[[], None]) -> None:
    """Have one be told of each request of this process, and another of some of their answers.

    Args:
        send: Called before it is sent, by whichever way; says whether its answer is of interest.
        answered: Called when the answer to such a one has come.
    """
    request_bytes, finish, open_ = Sending.request_bytes, Sending.finish, Sending.open
    wanted: set[Sending] = set()

    def sent(sending: Sending, target: Target) -> bytes:
        if send():
            wanted.add(sending)
        return request_bytes(sending, target)

    def finished(sending: Sending) -> Incoming | None:
        incoming = finish(sending)
        if incoming is not None and sending in wanted:
            answered()
        return incoming

    @contextmanager
    def opened(sending: Sending) -> Iterator[Incoming]:
        with open_(sending) as incoming:
            if sending in wanted:
                answered()
            yield incoming

    Sending.request_bytes = sent  # type: ignore[method-assign,assignment]
    Sending.finish = finished  # type: ignore[method-assign,assignment]
    Sending.open = opened  # type: ignore[method-assign,assignment]
