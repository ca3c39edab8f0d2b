"""Wait for a file lock.

The wait can't be in poll(2). Beside a `SignalTrap` a signal may raise inside it. Beside a
`SignalDescriptor`, whose signals are blocked, a timer interrupts it to look whether there is one;
and so does one where there is a limit. No timer is set for a lock that is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from leasectl.errors import LockHeld
from leasectl.system import signals

CLEAN_UP_SECONDS = 0.5
_LATER_SECONDS = 1.0
_LOOK_SECONDS = 0.05
# An interrupted waiter leaves the kernel's queue and joins it again behind the others.
_LOOK_AGAIN_SECONDS = 0.5
_TRY_AGAIN_SECONDS = 0.01
_FIRST_PAUSE_SECONDS = 0.0005


class LockLimit:
    """How long a thread waits for the locks of one opened state directory.

    The process that holds a lock may be stopped. Then a command that may wait for a limited time
    can't wait for it, nor a process that has another to look after.

    Args:
        uses_timer: A timer's signal ends a wait for a lock, so that the wait can be in the kernel's
            queue. In a process of others, whose signals aren't ours, the lock is tried again and
            again instead, in any thread.
    """

    def __init__(self, *, uses_timer: bool = True) -> None:
        self.uses_timer = uses_timer
        self._limit: tuple[float, float] | None = None

    @contextmanager
    def within(self, seconds: float | None, *, each_seconds: float = 0.0) -> Iterator[None]:
        """Let waits for locks inside fail once so many seconds are over.

        Args:
            seconds: From now on; None for no limit.
            each_seconds: How long each wait may take in any case: a lock that is only busy for a
                moment is no reason to leave something behind.
        """
        before = self._limit
        self._limit = None if seconds is None else (time.monotonic() + seconds, each_seconds)
        try:
            yield
        finally:
            self._limit = before

    def within_wait(self, wait_seconds: float | None) -> AbstractContextManager[None]:
        """Limit waits for locks to the time that a lease may be waited for, or a little longer.

        Args:
            wait_seconds: From now on; None for no limit.
        """
        limit = None if wait_seconds is None else wait_seconds + _LATER_SECONDS
        return self.within(limit, each_seconds=CLEAN_UP_SECONDS)

    def end_of_wait(self) -> float | None:
        """Return when a wait that begins now is given up, time.monotonic(); None for never."""
        if self._limit is None:
            return None
        give_up_at, each_seconds = self._limit
        return max(give_up_at, time.monotonic() + each_seconds)


def flock_exclusive(fd: int, limit: LockLimit | None = None) -> None:
    """Wait for an exclusive flock in the kernel's queue.

    After a signal has asked this process to end, a `SignalTrap` lets its cleanup still take the
    lock, but not wait long for it: the process that holds the lock may be stopped.

    Raises:
        Interrupted: A signal arrived while a `SignalTrap` is set, or one that ends a process waits
            in a `SignalDescriptor`; the lock may be held or not.
        LockHeld: It took longer than the limit allows; the lock may be held or not.
    """
    heeds = signals.current()
    give_up_at = None if limit is None else limit.end_of_wait()
    if heeds is None and give_up_at is None:
        fcntl.flock(fd, fcntl.LOCK_EX)  # in one call whether it is free or not
    elif _is_taken(fd):
        return
    elif limit is not None and give_up_at is not None and not limit.uses_timer:
        if not flock_within(fd, give_up_at - time.monotonic()):
            raise _HeldForTooLong(fd)
    elif heeds is None:
        _flock_in_time(fd, give_up_at)
    elif isinstance(heeds, signals.SignalDescriptor):
        _flock_looking_around(fd, give_up_at, signals.check_pending, first_seconds=_LOOK_SECONDS)
    elif not heeds.has_raised:
        trap = heeds
        trap.interrupting(lambda: _flock_in_time(fd, give_up_at, trap.check))
    else:
        while not flock_within(fd, CLEAN_UP_SECONDS):
            heeds.check()


def flock_within(fd: int, seconds: float) -> bool:
    """Try to get an exclusive flock for so long, not in the kernel's queue; returns whether."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while not _is_taken(fd):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _TRY_AGAIN_SECONDS)
    return True


def holders_of(fd: int) -> list[str]:
    """Return the pids that hold a flock on an open file, as far as this pid namespace shows.

    While /proc/locks is read, no process of the machine gets or releases a lock.
    """
    return _holders_of(_lock_name(fd))


def _lock_name(fd: int) -> str:
    """Return a file's name in /proc/locks."""
    found = os.fstat(fd)
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _holders_of(device: str) -> list[str]:
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


def _flock_in_time(
    fd: int, give_up_at: float | None, check: Callable[[], object] = signals.check_pending
) -> None:
    if give_up_at is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
    else:
        left = max(give_up_at - time.monotonic(), _TRY_AGAIN_SECONDS)
        _flock_looking_around(fd, give_up_at, check, first_seconds=left)


class _TimerFired(BaseException):
    """The timer has ended the system call; no handler of errors catches it."""


def _flock_looking_around(
    fd: int, give_up_at: float | None, check: Callable[[], object], *, first_seconds: float
) -> None:
    """Wait for the lock, and look now and then for a reason to stop.

    The handler of the timer only ends the system call, and only once for each wait: on a busy
    machine the timer may fire again before whatever a handler does is over. So everything else is
    done here, between two waits. To ask again for a lock that is held already does no harm.

    Args:
        fd: Descriptor of the lock file.
        give_up_at: When to give up, time.monotonic(); None for never.
        check: Raises Interrupted if a signal is to end the wait.
        first_seconds: Time until the first look; further ones follow each half second.
    """
    is_waiting = False

    def end_wait(_signum: int, _frame: FrameType | None) -> None:
        nonlocal is_waiting
        if is_waiting:
            is_waiting = False
            raise _TimerFired

    try:
        before = signal.signal(signal.SIGALRM, end_wait)
    except ValueError:  # signals and limits are the main thread's, and this is another
        fcntl.flock(fd, fcntl.LOCK_EX)
        return
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    # Repeatedly: the first may come between Python's last look at signals and the system call.
    signal.setitimer(signal.ITIMER_REAL, first_seconds, _LOOK_AGAIN_SECONDS)
    try:
        while True:
            try:
                try:
                    is_waiting = True
                    fcntl.flock(fd, fcntl.LOCK_EX)
                    return
                finally:
                    is_waiting = False
            except _TimerFired:
                pass
            check()
            if give_up_at is not None and time.monotonic() >= give_up_at and not _is_taken(fd):
                raise _HeldForTooLong(fd)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGALRM, before)


class _HeldForTooLong(LockHeld):
    """Names the holders, but looks for them only when it is shown.

    Most of these errors are caught by a retry. If each retry of each waiter read /proc/locks, a
    busy machine with many locks would do little else.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(os.readlink(f"/proc/self/fd/{fd}"))
        self._name = _lock_name(fd)

    def __str__(self) -> str:
        pids = " and ".join(_holders_of(self._name))
        holder = f"process {pids}" if pids else "a process that isn't visible here"
        return (
            f"{self.args[0]} was held all the time by {holder}; if the process is stopped, "
            "continue it with kill -CONT, or end it"
        )
