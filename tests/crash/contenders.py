"""Processes that take and give back leases, and write down what they saw."""

from __future__ import annotations

import os
import random
import select
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
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder

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
