"""Processes whose end somebody waits for."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from leasectl.model import Process
from leasectl.system.poll import is_readable
from leasectl.system.process import is_dead, open_pidfd, this_process

_MOST_IDLE = 8


class IdlePidfds:
    """pidfds that nobody waits on any more, of processes that may soon be waited for again.

    To open one takes two files of /proc. In a queue it is often the same one that is before.
    """

    def __init__(self) -> None:
        self._pidfds: dict[Process, int] = {}

    def take(self, process: Process) -> int | None:
        """The pidfd of a process, which is the caller's from here on; None if there is none."""
        return self._pidfds.pop(process, None)

    def put(self, process: Process, pidfd: int) -> None:
        """Keep a pidfd, and close the one that has been here for longest if there are many."""
        self._pidfds[process] = pidfd
        if len(self._pidfds) > _MOST_IDLE:
            os.close(self._pidfds.pop(next(iter(self._pidfds))))

    def close(self) -> None:
        """Close all of them."""
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])


class ProcessWatch:
    """pidfds of the processes somebody waits for, kept from one wait to the next.

    An end is told once: whoever goes on to wait for a dead process can't change that it is dead.

    Args:
        idle: Where to look for them first, and to leave them; None where none are kept.
    """

    def __init__(self, idle: IdlePidfds | None = None) -> None:
        self._idle = idle
        self._pidfds: dict[Process, int] = {}
        self._ended: set[Process] = set()

    def is_dead(self, process: Process | None) -> bool:
        """Tell whether a process has ended for certain, by its pidfd if it is here; None hasn't."""
        if process is None or process == this_process():
            return False
        pidfd = self._pidfds.get(process)
        if pidfd is None and self._idle is not None:
            pidfd = self._idle.take(process)
        if pidfd is None:
            return is_dead(process)
        if is_readable(pidfd, 0):
            os.close(self._pidfds.pop(process, pidfd))
            return True
        self._pidfds[process] = pidfd
        return False

    def update(self, processes: Sequence[Process]) -> bool:
        """Watch exactly these; returns whether one has ended of which that wasn't known yet."""
        wanted = set(processes)
        self._ended &= wanted
        for process in [p for p in self._pidfds if p not in wanted]:
            self._let_go(process, self._pidfds.pop(process))
        news = False
        for process in wanted - set(self._pidfds) - self._ended:
            pidfd = self._open(process)
            if pidfd is not None:
                self._pidfds[process] = pidfd
            elif is_dead(process):
                self._ended.add(process)
                news = True
        return news

    def heard(self, woken: Collection[int]) -> None:
        """Take note of the ends that a sleep was woken by."""
        for process, pidfd in list(self._pidfds.items()):
            if pidfd in woken:
                os.close(self._pidfds.pop(process))
                self._ended.add(process)

    @property
    def any_ended(self) -> bool:
        """Whether one of those that are watched is known to have ended."""
        return bool(self._ended)

    @property
    def ended(self) -> frozenset[Process]:
        """Those of which that is so."""
        return frozenset(self._ended)

    def fds(self) -> set[int]:
        """What becomes readable when one of them ends."""
        return set(self._pidfds.values())

    def close(self) -> None:
        """Watch nobody any more."""
        self.update(())

    def _open(self, process: Process) -> int | None:
        pidfd = None if self._idle is None else self._idle.take(process)
        return open_pidfd(process) if pidfd is None else pidfd

    def _let_go(self, process: Process, pidfd: int) -> None:
        if self._idle is None:
            os.close(pidfd)
        else:
            self._idle.put(process, pidfd)
