"""Processes that take and give back leases, and write down what they saw."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Callable

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import finish
from leasectl.leases.service import Service
from leasectl.model import Handle, Request
from leasectl.pools import admin
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder
from tests.kit.invariants import broken_invariants
from tests.kit.support import Cli
from tests.kit.waits import eventually

CONTENDER = "contender@host"
Choose = Callable[[random.Random], Request]


class Participant:
    """A long-lived process's way to leases, with a history.

    Args:
        directory: The state directory.
        history: The file that the history goes to.
        guarded: The process guards its leases: when it is killed, they are freed.
        backend: Where the leases come from.
    """

    def __init__(
        self,
        directory: Path,
        history: Path,
        *,
        guarded: bool = False,
        backend: str = "local:",
    ) -> None:
        state = State.open(str(directory))
        self._guard = this_process() if guarded else None
        self.service = Service(state, Context(backend, caller=Caller(CONTENDER, "host")))
        self._recorder = Recorder(history)

    def hold(self, request: Request, seconds: float = 0.0) -> Handle:
        """Acquire, hold for a moment and release."""
        handle = acquire(self.service, request, patience=Patience(), guard=self._guard)
        if request.name is not None:
            self._recorder.note("asked", handle.id, request.name)
        self._recorder.write("granted", handle.id, handle.leases)
        announce(self.service, handle)
        time.sleep(seconds)
        self._recorder.write("releasing", handle.id, handle.leases)
        finish(self.service, handle)
        return handle

    def close(self) -> None:
        """Let go of what is kept from one acquisition to the next."""
        self.service.state.close()


@contextmanager
def contention(directory: Path, history: Path, choices: Sequence[Choose]) -> Iterator[list[int]]:
    """Have one process for each choice take leases over and over until the block is left."""
    stop_read, stop_write = os.pipe()

    def contend(number: int, choose: Choose) -> None:
        os.close(stop_write)
        rng = random.Random(number)
        participant = Participant(directory, history)
        while not select.select([stop_read], [], [], 0)[0]:
            participant.hold(choose(rng), seconds=rng.random() / 500)
            time.sleep(rng.random() / 40)  # so that who is killed has others beside it, and time
        participant.close()

    pids = [fork(lambda n=n, c=c: contend(n, c)) for n, c in enumerate(choices)]  # type: ignore[misc]
    try:
        yield pids
    finally:
        os.close(stop_write)
        codes = [ending(pid) for pid in pids]
        os.close(stop_read)
    assert codes == [0] * len(pids)


def kill_contenders(cli: Cli, history: Path, choices: Sequence[Choose], *, seed: int) -> None:
    """Have six processes take leases and KILL one after the other; see that nothing is left.

    After each death, the others go on.

    Args:
        cli: On the embedded pools.
        history: The file that the history goes to.
        choices: Each request is one of these, by chance.
        seed: Of which process is killed.
    """
    rng = random.Random(seed)

    def written() -> int:
        return history.stat().st_size if history.exists() else 0  # before the first grant

    def take(number: int) -> None:
        own = random.Random(number)
        participant = Participant(cli.state_dir, history, guarded=True)
        while True:
            participant.hold(own.choice(choices)(own), seconds=own.random() / 500)

    pids = [fork(lambda n=n: take(n)) for n in range(6)]  # type: ignore[misc]
    try:
        for number in range(100, 140):
            before = written()
            victim = pids.pop(rng.randrange(len(pids)))
            os.kill(victim, signal.SIGKILL)
            assert ending(victim) == -signal.SIGKILL
            pids.append(fork(lambda n=number: take(n)))  # type: ignore[misc]
            eventually(lambda b=before: written() > b, what="a further grant")  # type: ignore[misc]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            ending(pid)
    with cli.service() as service:
        admin.show(service)  # who was killed before it had a keeper is left to this
        eventually(lambda: cli.held() == {}, what="the keeper frees what the killed held")
        admin.show(service)  # and so are the pipes of those whom the keeper found
    assert cli.waiting() == []
    assert broken_invariants(cli.state_dir) == []
