"""Sleeping in one poll(2): on named pipes, on processes, on whatever else ends the wait."""

from __future__ import annotations

import select
from collections.abc import Collection, Generator, Sequence

from leasectl.typed.hints import Callable, TypeVar
from leasectl.typed.tuples import NamedTuple

# The events of an `Interrupt` that is heard of when its descriptor can be read.
READABLE = select.POLLIN
# poll(2) counts on a clock that stops in suspend; a longer sleep is cut into such pieces.
_LONGEST_SLEEP_SECONDS = 6 * 3600.0


class Interrupt(NamedTuple):
    """A descriptor that ends a wait when it has something to say.

    Args:
        fd: A pollable descriptor.
        events: `READABLE`, or 0 for errors and hang-ups alone, which always count.
        raise_: Called then; raises what the wait ends with.
    """

    fd: int
    events: int
    raise_: Callable[[], None]


class Sleep(NamedTuple):
    """A sleep that somebody else is asked to do: until a descriptor can be read, or until a time.

    What waits is written as a generator of sleeps that gets sent the descriptors which ended each,
    so that it waits as well in a process of its own as beside thousands of others in one.
    """

    fds: frozenset[int]
    until: float | None


Result = TypeVar("Result")


def sleep_through(
    steps: Generator[Sleep, set[int], Result],
    *,
    interrupts: Sequence[Interrupt],
    now: Callable[[], float],
) -> Result:
    """Do the sleeps of a generator one after the other, blocking.

    Args:
        steps: What waits.
        interrupts: Their events are raised inside it.
        now: The clock, in seconds.

    Returns:
        What the generator returns.
    """
    try:
        wanted = next(steps)
        while True:
            try:
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


class ReadableSet:
    """Descriptors, as many as there are, behind one that can be read when any of them can.

    What it takes to sleep on that one, and to find which it was, doesn't grow with their number.

    Attributes:
        fd: That one.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()

    def add(self, fd: int) -> None:
        """Have a descriptor be in it; it is to be taken out before it is closed."""
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def readable(self) -> list[int]:
        """Those that can be read now, some of them if they are very many."""
        return [fd for fd, _ in self._epoll.poll(0)]

    def close(self) -> None:
        self._epoll.close()


def is_readable(fd: int, seconds: float | None = None) -> bool:
    """Wait until a descriptor has something to say; returns whether it has.

    Args:
        fd: A pollable descriptor.
        seconds: How long to wait at most; None for no limit.
    """
    poll = select.poll()
    poll.register(fd, READABLE)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def is_writable(fd: int, seconds: float) -> bool:
    """Wait until a descriptor takes what is written there; returns whether it does.

    Args:
        fd: Of whatever kind: a file takes it always.
        seconds: How long to wait at most.
    """
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def milliseconds(until: float | None, now: float) -> int | None:
    """The timeout for poll(2) until a time; None for no limit.

    Rounded up: waking a little early would mean spinning through the rest.
    """
    if until is None:
        return None
    return int(max(0.0, min(until - now, _LONGEST_SLEEP_SECONDS)) * 1000 + 0.999)
