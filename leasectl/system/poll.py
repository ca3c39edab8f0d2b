"""The poll(2) in which every waiter sleeps."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from leasectl.system.clock import boottime_seconds

# The events of an `Interrupt` with a descriptor that becomes readable.
READABLE = select.POLLIN
# poll(2) uses a clock that stops in suspend; a longer sleep is cut into pieces of this length.
_LONGEST_SLEEP_SECONDS = 6 * 3600.0
_TFD_TIMER_ABSTIME = 1  # of <sys/timerfd.h>


class Interrupt(NamedTuple):
    """A descriptor that ends a wait when it has an event.

    Args:
        fd: A pollable descriptor.
        events: `READABLE`, or 0 for only errors and hang-ups, which always count.
        raise_: Called then; raises the error that ends the wait.
    """

    fd: int
    events: int
    raise_: Callable[[], None]


class Sleep(NamedTuple):
    """A request to sleep until a descriptor can be read, or until a time.

    A wait is a generator of these; its driver sends the descriptors that ended each sleep. So the
    same wait works in a process of its own and beside thousands of others in one.
    """

    fds: frozenset[int]
    until: float | None


Result = TypeVar("Result")


def sleep_through(
    steps: Generator[Sleep, set[int], Result],
    *,
    interrupts: Sequence[Interrupt],
    now: Callable[[], float] = boottime_seconds,
    at_first_sleep: Callable[[], Sequence[Interrupt]] = tuple,
) -> Result:
    """Do the sleeps of a generator one after the other, blocking.

    Args:
        steps: The generator.
        interrupts: Their errors are raised inside it.
        now: The clock, in seconds.
        at_first_sleep: Returns further interrupts, which only a process that really sleeps needs.

    Returns:
        What the generator returns.
    """
    try:
        wanted, is_first = next(steps), True
        while True:
            try:
                if is_first:
                    is_first, interrupts = False, (*interrupts, *at_first_sleep())
                woken = sleep(
                    wake_fds=wanted.fds, interrupts=interrupts, until=wanted.until, now=now
                )
            except BaseException as reason:
                wanted = steps.throw(reason)
            else:
                wanted = steps.send(woken)
    except StopIteration as end:
        result: Result = end.value
        return result


def sleep(
    *,
    wake_fds: Collection[int] = (),
    interrupts: Sequence[Interrupt],
    until: float | None = None,
    now: Callable[[], float] = boottime_seconds,
) -> set[int]:
    """Sleep until a descriptor has an event or the time has come.

    Args:
        wake_fds: Any event on these ends the sleep.
        interrupts: Their events end it with the errors that they raise.
        until: A time of ``now``'s clock; None for none.
        now: The clock, in seconds.

    Returns:
        Those of ``wake_fds`` that had an event; empty when the time has come.
    """
    poll = select.poll()
    for fd in wake_fds:
        poll.register(fd, READABLE)
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


def pause(seconds: float, interrupts: Sequence[Interrupt]) -> None:
    """Sleep so long, unless an interrupt ends it."""
    sleep(interrupts=interrupts, until=boottime_seconds() + seconds)


def check(interrupts: Sequence[Interrupt]) -> None:
    """Raise the error of an interrupt whose event has come by now."""
    sleep(interrupts=interrupts, until=0.0, now=lambda: 0.0)


class ReadableSet:
    """Any number of descriptors behind one that is readable when any of them is.

    The cost of a sleep, and of finding the readable ones, doesn't grow with their number.

    Attributes:
        fd: The one to sleep on.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()

    def add(self, fd: int) -> None:
        """Add a descriptor, which must be removed before it is closed."""
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def readable(self) -> list[int]:
        """Return those that are readable now, or some of them if they are very many."""
        return [fd for fd, _ in self._epoll.poll(0)]

    def close(self) -> None:
        self._epoll.close()


class Alarm:
    """A descriptor that is readable once a time of CLOCK_BOOTTIME has come: a timerfd.

    A deadline that passes in suspend is noticed as soon as the machine resumes. poll(2) alone
    notices it only at the end of its timeout, which doesn't count suspended time. A bounded timeout
    would be late by up to its length, while the next holder has the lease, and would wake an idle
    process again and again.

    Python has timerfds from 3.13 on. Before, two calls by ctypes set one; ctypes is loaded with the
    first deadline.

    Attributes:
        fds: The descriptor; empty before the first deadline, or if the kernel has no timerfds. Then
            poll(2) has to do.
    """

    def __init__(self) -> None:
        self.fds: frozenset[int] = frozenset()
        self._until: float | None = None
        self._is_tried = False

    def set(self, until: float | None) -> None:
        """Set the deadline; None for none."""
        if until == self._until:
            return
        self._until = until
        if not self._is_tried:
            self._is_tried = True
            fd = _timerfd()
            self.fds = frozenset(() if fd is None else (fd,))
        for fd in self.fds:
            _set_timerfd(fd, until)

    def close(self) -> None:
        """Close the descriptor; the next deadline opens another."""
        fds, self.fds = self.fds, frozenset()
        self._until, self._is_tried = None, False
        for fd in fds:
            os.close(fd)


def _timerfd() -> int | None:
    flags = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK and TFD_CLOEXEC are the same
    if sys.version_info >= (3, 13):
        try:
            return os.timerfd_create(time.CLOCK_BOOTTIME, flags=flags)
        except OSError:
            return None
    else:
        fd: int = _libc().timerfd_create(time.CLOCK_BOOTTIME, flags)
        return fd if fd >= 0 else None


def _set_timerfd(fd: int, until: float | None) -> None:
    nanoseconds = 0 if until is None else max(1, int(until * 1e9))  # 0 means never
    if sys.version_info >= (3, 13):
        os.timerfd_settime_ns(fd, flags=os.TFD_TIMER_ABSTIME, initial=nanoseconds)
    else:
        import ctypes

        # struct itimerspec: the interval of a repeating timer, and its first time
        times = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, 1_000_000_000))
        _libc().timerfd_settime(fd, _TFD_TIMER_ABSTIME, times, None)


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def is_readable(fd: int, seconds: float | None = None) -> bool:
    """Wait until a descriptor is readable; return whether it is.

    Args:
        fd: A pollable descriptor.
        seconds: How long to wait at most; None for no limit.
    """
    return _is_ready(fd, READABLE, seconds)


def is_writable(fd: int, seconds: float) -> bool:
    """Wait until a descriptor is writable; return whether it is.

    Args:
        fd: Of any kind: a file is always writable.
        seconds: How long to wait at most.
    """
    return _is_ready(fd, select.POLLOUT, seconds)


def _is_ready(fd: int, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, event)
    if seconds is None or seconds <= _LONGEST_SLEEP_SECONDS:  # the usual case
        return bool(poll.poll(None if seconds is None else seconds * 1000))
    until = boottime_seconds() + seconds
    while True:
        if poll.poll(milliseconds(until, boottime_seconds())):
            return True
        if boottime_seconds() >= until:
            return False


def milliseconds(until: float | None, now: float) -> int | None:
    """Return the timeout for poll(2) until a time; None for no limit.

    Rounded up: waking a little early would mean spinning through the rest.
    """
    if until is None:
        return None
    return int(max(0.0, min(until - now, _LONGEST_SLEEP_SECONDS)) * 1000 + 0.999)
