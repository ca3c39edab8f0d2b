"""Processes whose end somebody waits for."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from leasectl.model import Process
from leasectl.system.process import is_dead, open_pidfd


class ProcessWatch:
    """pidfds of the processes somebody waits for, kept from one wait to the next.

    An end is told once: whoever goes on to wait for a dead process can't change that it is dead.
    """

    def __init__(self) -> None:
        self._pidfds: dict[Process, int] = {}
        self._ended: set[Process] = set()

    def update(self, processes: Sequence[Process]) -> bool:
        """Watch exactly these; returns whether one has ended of which that wasn't known yet."""
        wanted = set(processes)
        self._ended &= wanted
        for process in [p for p in self._pidfds if p not in wanted]:
            os.close(self._pidfds.pop(process))
        news = False
        for process in wanted - set(self._pidfds) - self._ended:
            pidfd = open_pidfd(process)
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

    def fds(self) -> set[int]:
        """What becomes readable when one of them ends."""
        return set(self._pidfds.values())

    def close(self) -> None:
        """Watch nobody any more."""
        self.update(())
