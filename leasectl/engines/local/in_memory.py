"""Embedded pools in this process's memory, for simulations and tests.

They are granted by the code of the embedded pool, on the same tables. What differs is where those
are: a database in memory takes the place of ``state.db``, an anonymous file that of ``state.lock``,
and wakers that of named pipes. Nothing is on disk, so nobody else takes part, and nothing is left.
All is done by one thread.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Protocol

from leasectl.engines.contract import LostListener
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.wait_pipes import WaitPipe, WaitPipes
from leasectl.model import Claimant, Handle
from leasectl.state.creation import fill
from leasectl.state.directory import State
from leasectl.state.handle_rows import new_row
from leasectl.state.rows import insert
from leasectl.system.clock import Clock
from leasectl.system.process_watch import IdlePidfds
from leasectl.system.wakeup import Wakeup

# Nothing can be made there, so whoever looks for a file finds none.
_NOWHERE = "/proc/leasectl-in-memory"


class Waker(Protocol):
    """What ends one waiter's sleep; `Wakeup` is one.

    Attributes:
        fd: What the sleeper asks to be woken by: a descriptor, or just a number where whoever runs
            all waiters polls nothing.
    """

    fd: int

    def set(self) -> None:
        """End the sleep, or else the next one."""

    def clear(self) -> None:
        """Get ready for the next sleep."""

    def close(self) -> None:
        """Give up what it holds open."""


class MemoryState(State):
    """What a state directory holds of embedded pools, without the directory.

    Args:
        new_waker: Makes what wakes a waiter.

    Attributes:
        new_waker: As given.
        wakers: Of the waiters that listen, by the paths that their named pipes would have.
    """

    def __init__(self, new_waker: Callable[[], Waker] = Wakeup) -> None:
        lock_fd = os.memfd_create("state.lock", os.MFD_CLOEXEC)
        db = sqlite3.connect(":memory:", isolation_level=None)
        fill(db, fence=0)
        db.row_factory = sqlite3.Row
        super().__init__(_NOWHERE, os.dup(lock_fd), lock_fd, db, os.fstat(lock_fd))
        self.new_waker = new_waker
        self.wakers: dict[str, Waker] = {}
        # As many as there are: the time of a simulation is not that of any disk.
        self.events.kept_seconds = float("inf")
        self.events.kept_number = 1 << 62

    def wake(self, pipe: str) -> bool:
        waker = self.wakers.get(pipe)
        if waker is not None:
            waker.set()
        return waker is not None


class _Pipe(WaitPipe):
    """A waker that listens under the name of a named pipe."""

    is_made = True

    def __init__(self, state: MemoryState) -> None:
        super().__init__(state, lambda _: False)
        self._wakers = state.wakers
        self._waker = state.new_waker()

    @property
    def fd(self) -> int:
        return self._waker.fd

    def open(self) -> None:
        self._wakers[self._path] = self._waker

    def clear(self) -> None:
        self._waker.clear()

    def close(self) -> None:
        self._wakers.pop(self._path, None)
        self._waker.close()


class _Pipes(WaitPipes):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._memory = state

    def get(self) -> WaitPipe:
        return _Pipe(self._memory)


class MemoryEngine(LocalEngine):
    """Embedded pools in memory as an engine."""

    def __init__(self, state: MemoryState, *, lost: LostListener, clock: Clock) -> None:
        super().__init__(state, lost=lost, clock=clock)
        self._pipes, self._pidfds = _Pipes(state), IdlePidfds()


def record(state: State, claimant: Claimant) -> None:
    """Write what the queue reads of a request in the record of its handle."""
    handle = Handle(
        id=claimant.claim_key,
        backend="local:",
        request=claimant.request,
        owner="",
        holder_identity=claimant.holder_identity,
        state="acquiring",
        acquisition=claimant.acquisition,
    )
    insert(state.db, "handle", new_row(handle, watched=False), replace=True)
