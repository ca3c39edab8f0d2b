"""Waiting for a flock(2) in the kernel's queue, in a process that has signals to heed.

The wait can't be in poll(2). Beside a `SignalTrap` a signal may raise inside it. Beside a
`SignalDescriptor`, whose signals are blocked, a timer interrupts it to look whether there is one.
"""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from leasectl.errors import LeaseError
from leasectl.system import signals

CLEAN_UP_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_TRY_AGAIN_SECONDS = 0.01

_give_up_at: float | None = None


def flock_exclusive(fd: int) -> None:
    """Wait for an exclusive flock in the kernel's queue.

    Beside a `SignalTrap` that has ended something already, what is cleaned up may still take the
    lock, but not wait for long: whoever holds it may be stopped, and a signal is to end this
    process.

    Raises:
        Interrupted: A signal arrived while a `SignalTrap` is set, or one that ends a process waits
            in a `SignalDescriptor`; the lock may be held or not.
        LeaseError: It took longer than `lock_limit` allows; the lock may be held or not.
    """
    if _is_taken(fd):
        return
    heeds = signals.current()
    if heeds is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
    elif isinstance(heeds, signals.SignalDescriptor):
        _flock_looking_around(fd)
    elif not heeds.has_raised:
        heeds.interrupting(lambda: fcntl.flock(fd, fcntl.LOCK_EX))
    else:
        while not flock_within(fd, CLEAN_UP_SECONDS):
            heeds.check()


def flock_within(fd: int, seconds: float) -> bool:
    """Try to get an exclusive flock for so long, not in the kernel's queue; returns whether."""
    deadline = time.monotonic() + seconds
    while not _is_taken(fd):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_TRY_AGAIN_SECONDS)
    return True


@contextmanager
def lock_limit(seconds: float) -> Iterator[None]:
    """Have waits for a lock inside fail once so many seconds are over.

    Only beside a `SignalDescriptor`: what has a command to look after can't wait for whoever holds
    the lock and is stopped.
    """
    global _give_up_at
    _give_up_at = time.monotonic() + seconds
    try:
        yield
    finally:
        _give_up_at = None


def _is_taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check() -> None:
    signals.check_pending()
    if _give_up_at is not None and time.monotonic() >= _give_up_at:
        raise LeaseError("another process holds state.lock for too long; is it stopped?")


def _flock_looking_around(fd: int) -> None:
    """Wait for the lock, looking now and then whether there is a reason to stop."""
    waiting = True

    def look(_signum: int, _frame: FrameType | None) -> None:
        if waiting:
            _check()

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        finally:
            waiting = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
