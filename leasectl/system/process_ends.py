"""The ends of many processes, each told when it comes: what that costs doesn't grow with them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable

from leasectl.errors import LeaseError
from leasectl.model import Process
from leasectl.system.poll import ReadableSet
from leasectl.system.process import liveness, open_pidfd


class ProcessEnds:
    """Processes that somebody follows, and which of them have ended.

    Each has a pidfd for as long as it is followed. One for which there is no room is looked at when
    somebody says so, and one in another pid namespace never ends.

    Args:
        most: How many pidfds there may be.

    Attributes:
        fd: Readable when one of those has ended and `take` hasn't told it yet.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._readable = ReadableSet()
        self.fd = self._readable.fd
        self._followers: Counter[Process] = Counter()
        self._pidfds: dict[Process, int] = {}
        self._processes: dict[int, Process] = {}  # by pidfd
        self._without: dict[Process, None] = {}  # whose end no pidfd tells
        self._ended: set[Process] = set()
        self._untaken: list[Process] = []

    def has_ended(self, process: Process | None) -> bool:
        """Tell whether the end of one that is followed is known; None doesn't end."""
        return process in self._ended

    def follow(self, processes: Iterable[Process]) -> None:
        """Follow some, each as often as this was called; who is dead already is known to be."""
        for process in processes:
            self._followers[process] += 1
            if self._followers[process] == 1:
                self._begin(process)

    def leave(self, processes: Iterable[Process]) -> None:
        """Follow some once less each."""
        for process in processes:
            self._followers[process] -= 1
            if not self._followers[process]:
                del self._followers[process]
                self._close(process)
                self._without.pop(process, None)
                self._ended.discard(process)

    def take(self) -> list[Process]:
        """Those of which it is known since the last call that they have ended."""
        while True:
            fds = self._readable.readable()
            if not fds:
                break
            for fd in fds:
                self._note_end(self._processes[fd])
        taken, self._untaken = self._untaken, []
        return [process for process in taken if process in self._ended]

    def look(self) -> bool:
        """Look at those that have no pidfd; returns whether one has ended."""
        for process in list(self._without):
            del self._without[process]
            self._begin(process)
        return bool(self._untaken)

    def close(self) -> None:
        """Follow nobody any more."""
        for process in list(self._pidfds):
            self._close(process)
        self._readable.close()

    def _begin(self, process: Process) -> None:
        pidfd = None
        if len(self._pidfds) < self._most:
            with contextlib.suppress(OSError, LeaseError):  # no room after all, or none anywhere
                pidfd = open_pidfd(process)
        if pidfd is not None and self._add(process, pidfd):
            return
        found = liveness(process)
        if found == "dead":
            self._note_end(process)
        elif found == "alive":
            self._without[process] = None

    def _add(self, process: Process, pidfd: int) -> bool:
        try:
            self._readable.add(pidfd)
        except OSError:
            os.close(pidfd)
            return False
        self._pidfds[process] = pidfd
        self._processes[pidfd] = process
        return True

    def _note_end(self, process: Process) -> None:
        self._close(process)
        self._ended.add(process)
        self._untaken.append(process)

    def _close(self, process: Process) -> None:
        pidfd = self._pidfds.pop(process, None)
        if pidfd is not None:
            del self._processes[pidfd]
            self._readable.remove(pidfd)
            os.close(pidfd)
