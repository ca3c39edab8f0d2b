"""Descriptors that tell when processes end."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from leasectl.errors import LeaseError
from leasectl.model import Process
from leasectl.system.poll import ReadableSet, is_readable
from leasectl.system.process import is_dead, liveness, open_pidfd, this_process

_MOST_IDLE = 8


class IdlePidfds:
    """pidfds that aren't waited on any more, of processes that may soon be waited for again.

    To open one takes two files of /proc. In a queue it is often the same process that is ahead.
    """

    def __init__(self) -> None:
        self._pidfds: dict[Process, int] = {}

    def take(self, process: Process) -> int | None:
        """Return the pidfd of a process, now the caller's; None if there is none."""
        return self._pidfds.pop(process, None)

    def put(self, process: Process, pidfd: int) -> None:
        """Keep a pidfd, and close the oldest one if there are many."""
        self._pidfds[process] = pidfd
        if len(self._pidfds) > _MOST_IDLE:
            os.close(self._pidfds.pop(next(iter(self._pidfds))))

    def close(self) -> None:
        """Close all of them."""
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])


class ProcessWatch:
    """pidfds of the processes that are waited for, kept from one wait to the next.

    An end is reported once: a caller that goes on to wait for a dead process isn't told again.

    Args:
        idle: Where to look for pidfds first, and to leave them; None where none are kept.
    """

    def __init__(self, idle: IdlePidfds | None = None) -> None:
        self._idle = idle
        self._pidfds: dict[Process, int] = {}
        self._ended: set[Process] = set()

    def is_dead(self, process: Process | None) -> bool:
        """Return whether a process has certainly ended, by its pidfd if it is here; None hasn't."""
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
        """Watch exactly these; return whether one has newly ended."""
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
        """Note the ends that woke a sleep."""
        for process, pidfd in list(self._pidfds.items()):
            if pidfd in woken:
                os.close(self._pidfds.pop(process))
                self._ended.add(process)

    @property
    def any_ended(self) -> bool:
        """Whether a watched process is known to have ended."""
        return bool(self._ended)

    @property
    def ended(self) -> frozenset[Process]:
        """The processes that have ended."""
        return frozenset(self._ended)

    def fds(self) -> set[int]:
        """What becomes readable when one of them ends."""
        return set(self._pidfds.values())

    def close(self) -> None:
        """Stop watching."""
        self.update(())

    def _open(self, process: Process) -> int | None:
        pidfd = None if self._idle is None else self._idle.take(process)
        return open_pidfd(process) if pidfd is None else pidfd

    def _let_go(self, process: Process, pidfd: int) -> None:
        if self._idle is None:
            os.close(pidfd)
        else:
            self._idle.put(process, pidfd)


class ProcessEnds:
    """Processes that are followed, and which of them have ended.

    Each has a pidfd for as long as it is followed. `look` checks those without one: there was no
    room for it, or they are in another pid namespace.

    Args:
        most: How many pidfds there may be.

    Attributes:
        fd: Readable when one of those has ended and `take` hasn't returned it yet.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._readable = ReadableSet()
        self.fd = self._readable.fd
        self._followers: Counter[Process] = Counter()
        self._pidfds: dict[Process, int] = {}
        self._processes: dict[int, Process] = {}  # by pidfd
        self._without: dict[Process, None] = {}  # processes without a pidfd
        self._ended: set[Process] = set()
        self._untaken: list[Process] = []

    def has_ended(self, process: Process | None) -> bool:
        """Return whether a followed process is known to have ended; None doesn't end."""
        return process in self._ended

    def follow(self, processes: Iterable[Process]) -> None:
        """Follow processes, each as often as this was called; a dead one is known to be at once."""
        for process in processes:
            self._followers[process] += 1
            if self._followers[process] == 1:
                self._begin(process)

    def leave(self, processes: Iterable[Process]) -> None:
        """Undo one `follow` of each."""
        for process in processes:
            self._followers[process] -= 1
            if not self._followers[process]:
                del self._followers[process]
                self._close(process)
                self._without.pop(process, None)
                self._ended.discard(process)

    def take(self) -> list[Process]:
        """Return the processes that were found ended since the last call."""
        while True:
            fds = self._readable.readable()
            if not fds:
                break
            for fd in fds:
                self._note_end(self._processes[fd])
        taken, self._untaken = self._untaken, []
        return [process for process in taken if process in self._ended]

    def look(self) -> bool:
        """Look at the processes without a pidfd; return whether one has ended."""
        for process in list(self._without):
            del self._without[process]
            self._begin(process)
        return bool(self._untaken)

    def close(self) -> None:
        """Stop following."""
        for process in list(self._pidfds):
            self._close(process)
        self._readable.close()

    def _begin(self, process: Process) -> None:
        pidfd = None
        if len(self._pidfds) < self._most:
            with contextlib.suppress(OSError, LeaseError):  # no descriptor is left
                pidfd = open_pidfd(process)
        if pidfd is not None and self._add(process, pidfd):
            return
        found = liveness(process)
        if found == "dead":
            self._note_end(process)
        else:  # if it can't be read now, `look` may find it dead later
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
