"""Waiting for a flock(2) in the kernel's queue, in a process that has signals to heed.

The wait can't be in poll(2). Beside a `SignalTrap` a signal may raise inside it. Beside a
`SignalDescriptor`, whose signals are blocked, a timer interrupts it to look whether there is one;
and so does one where there is a limit. No timer is set for a lock that is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from leasectl.errors import LockHeld
from leasectl.system import c_signal as signal
from leasectl.system import signals
from leasectl.typed.tuples import NamedTuple

CLEAN_UP_SECONDS = 0.5
_LATER_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_TRY_AGAIN_SECONDS = 0.01


class _Limit(NamedTuple):
    """How long locks may be waited for.

    Args:
        give_up_at: Until when, time.monotonic().
        each_seconds: For each at least that long, also after that.
    """

    give_up_at: float
    each_seconds: float

    def of_a_wait(self) -> float:
        """When a wait that begins now is given up."""
        return max(self.give_up_at, time.monotonic() + self.each_seconds)


_limit: _Limit | None = None


def flock_exclusive(fd: int) -> None:
    """Wait for an exclusive flock in the kernel's queue.

    Beside a `SignalTrap` that has ended something already, what is cleaned up may still take the
    lock, but not wait for long: whoever holds it may be stopped, and a signal is to end this
    process.

    Raises:
        Interrupted: A signal arrived while a `SignalTrap` is set, or one that ends a process waits
            in a `SignalDescriptor`; the lock may be held or not.
        LockHeld: It took longer than `lock_limit` allows; the lock may be held or not.
    """
    heeds = signals.current()
    if heeds is None and _limit is None:
        fcntl.flock(fd, fcntl.LOCK_EX)  # in one call whether it is free or not
    elif _is_taken(fd):
        return
    elif heeds is None:
        _flock_in_time(fd)
    elif isinstance(heeds, signals.SignalDescriptor):
        _flock_looking_around(fd, first_seconds=_LOOK_SECONDS)
    elif not heeds.has_raised:
        heeds.interrupting(lambda: _flock_in_time(fd))
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
def lock_limit(seconds: float | None, *, each_seconds: float = 0.0) -> Iterator[None]:
    """Have waits for locks inside fail once so many seconds are over; in the main thread.

    Whoever holds a lock may be stopped: then neither a command that is to wait for so long and no
    longer can wait for it, nor what has another to look after.

    Args:
        seconds: From now on; None for no limit.
        each_seconds: How long each wait may take all the same: a lock that is only busy for a
            moment is no reason to leave something behind.
    """
    global _limit
    before = _limit
    _limit = None if seconds is None else _Limit(time.monotonic() + seconds, each_seconds)
    try:
        yield
    finally:
        _limit = before


def wait_limit(wait_seconds: float | None) -> AbstractContextManager[None]:
    """Heed how long a lease is waited for also where another process holds a lock.

    Args:
        wait_seconds: From now on, which a lock may take a little longer; None for no limit.
    """
    limit = None if wait_seconds is None else wait_seconds + _LATER_SECONDS
    return lock_limit(limit, each_seconds=CLEAN_UP_SECONDS)


def holders_of(fd: int) -> list[str]:
    """The pids of those who hold a flock on an open file, as far as this pid namespace shows."""
    found = os.fstat(fd)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        # A waiting one has an arrow in its second field.
        fields = [line.split() for line in file]
        return [each[4] for each in fields if each[1] == "FLOCK" and device in each]
    return []


def _is_taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _flock_in_time(fd: int) -> None:
    if _limit is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
    else:
        left = _limit.of_a_wait() - time.monotonic()
        _flock_looking_around(fd, first_seconds=max(left, _TRY_AGAIN_SECONDS))


def _flock_looking_around(fd: int, *, first_seconds: float) -> None:
    """Wait for the lock, looking now and then whether there is a reason to stop.

    Args:
        fd: Of the lock.
        first_seconds: When it looks first; from then on, often.
    """
    waiting = True
    give_up_at = None if _limit is None else _limit.of_a_wait()

    def look(_signum: int, _frame: FrameType | None) -> None:
        if waiting:
            signals.check_pending()
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise _held_for_too_long(fd)

    try:
        before = signal.signal(signal.SIGALRM, look)
    except ValueError:  # in another thread than the main one, which is who heeds signals and limits
        fcntl.flock(fd, fcntl.LOCK_EX)
        return
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    # More than once: it may come between Python's last look at signals and the wait itself.
    signal.setitimer(signal.ITIMER_REAL, first_seconds, _LOOK_SECONDS)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        finally:
            waiting = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGALRM, before)


def _held_for_too_long(fd: int) -> LockHeld:
    path = os.readlink(f"/proc/self/fd/{fd}")
    pids = " and ".join(holders_of(fd)) or "that can't be seen from here"
    return LockHeld(
        f"{path} was held all the time by process {pids}; if that is stopped, continue it with "
        "kill -CONT, or end it"
    )
