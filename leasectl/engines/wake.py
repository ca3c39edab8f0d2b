"""Sleeping in one poll(2): on a named pipe, on processes, on whatever else ends the wait."""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Collection, Generator, Sequence
from typing import Callable, NamedTuple, TypeVar

from leasectl.engines.base import Interrupt
from leasectl.liveness import Process, is_dead, open_pidfd

# poll(2) counts on a clock that stops in suspend; a longer sleep is cut into such pieces.
_LONGEST_SLEEP_SECONDS = 6 * 3600.0


class NamedPipe:
    """A pipe that others open and close to wake its reader.

    The hang-up of a writer is the wake-up. It stays until the descriptor is renewed, and a
    renewed descriptor no longer sees writers that were there before; so whoever renews it has
    to look at the database afterwards, not before.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = self._make()

    def _make(self) -> int:
        while True:
            try:
                os.mkfifo(self.path, 0o600)
            except FileExistsError:
                self.remove()
                continue
            try:
                return self._open()
            except FileNotFoundError:
                continue  # it had no reader yet, and somebody took it for a dead one's

    def _open(self) -> int:
        return os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def renew(self) -> None:
        """Get ready for the next wake-up. The new descriptor is open before the old one closes:
        in between no writer may find the pipe without a reader.

        A pipe that has been removed has nobody left who would open it; what it stood for is gone,
        as its owner is about to read in the database. The descriptor keeps its number: who polls it
        would soon poll another file.
        """
        try:
            fresh = self._open()
        except FileNotFoundError:
            return
        os.dup2(fresh, self.fd, inheritable=False)
        os.close(fresh)

    def remove(self) -> None:
        """Take it out of its folder: who opens a pipe of that name from here on finds another."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def restore(self) -> None:
        """Put it back after all."""
        self.remove()
        os.mkfifo(self.path, 0o600)
        self.renew()

    def close(self) -> None:
        os.close(self.fd)
        self.remove()


def is_read(path: str) -> bool:
    """Tell whether a named pipe has a reader, who wakes by the question."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


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
        self.update(())


class Nap(NamedTuple):
    """A sleep that somebody else is asked to do: until a descriptor can be read, or until a time.

    What waits is written as a generator of naps that gets sent the descriptors which ended each,
    so that it waits as well in a process of its own as beside thousands of others in one.
    """

    fds: frozenset[int]
    until: float | None


Result = TypeVar("Result")


def sleep_through(
    steps: Generator[Nap, set[int], Result],
    *,
    interrupts: Sequence[Interrupt],
    now: Callable[[], float],
) -> Result:
    """Do the naps of a generator one after the other, blocking.

    Args:
        steps: What waits.
        interrupts: Their events are raised inside it.
        now: The clock, in seconds.

    Returns:
        What the generator returns.
    """
    try:
        nap = next(steps)
        while True:
            try:
                woken = sleep(wake_fds=nap.fds, interrupts=interrupts, until=nap.until, now=now)
            except BaseException as reason:
                nap = steps.throw(reason)
            else:
                nap = steps.send(woken)
    except StopIteration as end:
        result: Result = end.value
        return result


def sleep(
    *,
    wake_fds: Collection[int],
    interrupts: Sequence[Interrupt],
    until: float | None,
    now: Callable[[], float],
) -> set[int]:
    """Sleep until a descriptor has something to say or the time has come.

    Args:
        wake_fds: Any event on these ends the sleep.
        interrupts: Their events end it with whatever they raise.
        until: A time of ``now``'s clock; None for none.
        now: The clock, in seconds.

    Returns:
        Those of ``wake_fds`` that had an event; empty when the time has come.
    """
    poll = select.poll()
    for fd in wake_fds:
        poll.register(fd, select.POLLIN)
    by_fd = {interrupt.fd: interrupt for interrupt in interrupts}
    for interrupt in interrupts:
        poll.register(interrupt.fd, interrupt.events)
    while True:
        events = poll.poll(milliseconds(until, now()))
        for fd, _ in events:
            if fd in by_fd:
                by_fd[fd].raise_()
        woken = {fd for fd, _ in events if fd not in by_fd}
        if woken or (until is not None and now() >= until):
            return woken


def milliseconds(until: float | None, now: float) -> int | None:
    """The timeout for poll(2) until a time; None for no limit.

    Rounded up: waking a little early would mean spinning through the rest.
    """
    if until is None:
        return None
    return int(max(0.0, min(until - now, _LONGEST_SLEEP_SECONDS)) * 1000 + 0.999)
