"""A waiter among the threads of this process, or among the turns of one thread."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Callable, Protocol

from leasectl.model import Process, Ticket
from leasectl.system.process_watch import ProcessWatch
from leasectl.system.wakeup import Wakeup


class Bell(Protocol):
    """What ends one waiter's sleep; `Wakeup` is one.

    Attributes:
        fd: What the sleeper asks to be woken by: a descriptor, or, to whoever runs all turns
            himself and polls nothing, just a number.
    """

    fd: int

    def set(self) -> None:
        """Have the sleep end."""

    def clear(self) -> None:
        """The sleep has ended."""

    def close(self) -> None:
        """It isn't needed any more."""


class MemoryWaiter:
    """One waiter's ear.

    Args:
        new_wakeup: Makes what wakes it; called when it has to wait.
    """

    def __init__(self, new_wakeup: Callable[[], Bell] = Wakeup) -> None:
        self._new_wakeup = new_wakeup
        self._wakeup: Bell | None = None
        self._processes = ProcessWatch()

    @property
    def has_place(self) -> bool:
        return True

    def open(self) -> None:
        if self._wakeup is None:
            self._wakeup = self._new_wakeup()

    def wake(self) -> None:
        """End its sleep; from any thread."""
        if self._wakeup is not None:
            self._wakeup.set()

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        assert self._wakeup is not None, "open() comes first"
        self._processes.update(processes)
        return frozenset((self._wakeup.fd, *self._processes.fds())), self._processes.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._wakeup is not None and self._wakeup.fd in woken:
            self._wakeup.clear()
        ended = not woken.isdisjoint(self._processes.fds())
        self._processes.heard(woken)
        return ended

    def close(self) -> None:
        self._processes.close()
        if self._wakeup is not None:
            self._wakeup.close()
