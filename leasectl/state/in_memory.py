"""The tables of a state directory in this process's memory, for simulations and tests.

The embedded pools run on them unchanged. A database in memory takes the place of ``state.db``, an
anonymous file that of ``state.lock``, and wakers that of named pipes. No other process takes part,
and nothing is left behind. There are no names files, so no handle is granted anything here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Protocol

from leasectl.model import Claimant, Handle
from leasectl.state.directory import State
from leasectl.state.handles import new_row
from leasectl.state.named_pipe import NamedPipe
from leasectl.state.rows import insert
from leasectl.state.schema import fill
from leasectl.system.lock_wait import LockLimit
from leasectl.system.wakeup import Wakeup

# No process can make a file there, so each search for one finds nothing.
_NOWHERE = "/proc/leasectl-in-memory"


class Waker(Protocol):
    """What ends the sleeps of one waiter; `Wakeup` is one.

    Attributes:
        fd: A descriptor to poll; any number where the caller runs all waiters and polls nothing.
    """

    fd: int

    def set(self) -> None:
        """End the sleep, or else the next one."""

    def clear(self) -> None:
        """Get ready for the next sleep."""

    def close(self) -> None:
        """Release what it holds open."""


class MemoryState(State):
    """A state directory without a directory. Threads may share it, one at a time.

    Args:
        new_waker: Returns what wakes a waiter.
    """

    def __init__(self, new_waker: Callable[[], Waker] = Wakeup) -> None:
        lock_fd = os.memfd_create("state.lock", os.MFD_CLOEXEC)
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        fill(db, fence=0)
        db.row_factory = sqlite3.Row
        limit = LockLimit()
        super().__init__(_NOWHERE, os.dup(lock_fd), lock_fd, db, limit, os.fstat(lock_fd))
        self.events.kept_seconds, self.events.kept_number = float("inf"), 1 << 62
        self._new_waker = new_waker
        self._listening: dict[str, Waker] = {}

    def listen(self, pipe: str) -> NamedPipe:
        return _MemoryPipe(pipe, self._new_waker(), self._listening)

    def wake(self, pipe: str) -> bool:
        waker = self._listening.get(pipe)
        if waker is not None:
            waker.set()
        return waker is not None


class _MemoryPipe(NamedPipe):
    """A waker under the path of a named pipe. It is never reused."""

    def __init__(self, path: str, waker: Waker, listening: dict[str, Waker]) -> None:
        self.path, self.fd = path, waker.fd
        self._waker = waker
        self._listening = listening
        listening[path] = waker

    def renew(self) -> None:
        self._waker.clear()

    def is_in_place(self) -> bool:
        return False

    def close(self) -> None:
        del self._listening[self.path]
        self._waker.close()


def record(state: State, claimant: Claimant) -> None:
    """Write a handle's record, from which the queue reads what is asked for."""
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
