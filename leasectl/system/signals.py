"""Signals as descriptors, so that none strikes between a commit and its record.

A handler that raises wherever Python happens to be can strike between a commit and the line that
remembers it. So while a `SignalTrap` is set, a signal is only noted, and wakes the process from
poll(2). Three places can block without polling. The wait for `state.lock` (`lock_wait`) and the
writing of a command's output let the signal raise there. The `pause` before a server that doesn't
answer is asked again looks for it.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn

from leasectl.errors import Interrupted, Unanswered

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

_SIGSET_BYTES = 128
_SIGINFO = struct.Struct("=Iii116x")

_current: SignalTrap | SignalDescriptor | None = None


class SignalTrap:
    """Context manager that turns TERM, INT, HUP and QUIT into a readable descriptor.

    Signals that were ignored on entry stay ignored, as nohup(1) wants.

    Attributes:
        fd: Readable once a signal has arrived.
        signum: The first signal that arrived, or None.
        has_raised: The signal was raised, so the process is cleaning up.
    """

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.signum: int | None = None
        self.has_raised = False
        self._raise_at_once = False
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> SignalTrap:
        global _current
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for signum in ENDING:
            if signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._note)
        _current = self
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = None
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self.fd)
        os.close(self._write_fd)

    def check(self) -> None:
        """Raise Interrupted when a signal has arrived."""
        if self.signum is not None:
            self.has_raised = True
            raise Interrupted(self.signum)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum = signum
        if self._raise_at_once and not self.has_raised:
            self.has_raised = (
                True  # once: the next signal must not strike the cleanup after this one
            )
            raise Interrupted(signum)

    def interrupting(self, block: Callable[[], object]) -> None:
        """Call a function that blocks without polling; a signal ends it with Interrupted."""
        before, self._raise_at_once = self._raise_at_once, True
        try:
            self.check()
            block()
        finally:
            self._raise_at_once = before  # this call may be nested in another one


def raise_on_interrupt() -> None:
    """Make INT raise KeyboardInterrupt, Python's default, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_at_once() -> None:
    """Make INT end this process instead of raising KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def current() -> SignalTrap | SignalDescriptor | None:
    """Return what takes this process's signals; None if the usual handlers do."""
    return _current


def pause(seconds: float) -> None:
    """Pause for a moment between two tries of a request that may fail for long.

    After a signal there is no second try: cleanup asks once. This holds in the main thread, which
    gets the signals; other threads go on.

    Raises:
        Unanswered: A signal has arrived, now or before, while a `SignalTrap` is set, or one that
            ends a process in a `SignalDescriptor`.
    """
    import threading  # few commands need it

    heeds = _current if threading.current_thread() is threading.main_thread() else None
    if heeds is None:
        time.sleep(seconds)
        return
    try:
        heeds.check()
        time.sleep(seconds)
        heeds.check()
    except Interrupted as interrupted:
        raise Unanswered(interrupted.signum) from None


class SignalDescriptor:
    """Blocked signals, read from a descriptor together with their senders; see signalfd(2).

    Python has no binding for it, and its own handlers don't learn the sender.

    Args:
        signums: What to block and read, except those that are ignored now.

    Attributes:
        fd: Readable when a signal has arrived.
        mask_before: The signal mask on entry.
    """

    def __init__(self, signums: Iterable[int]) -> None:
        import ctypes

        global _current
        wanted = {s for s in signums if signal.getsignal(s) != signal.SIG_IGN}
        # Else output to a terminal with `stty tostop` could stop this process in the background.
        blocked = wanted | {signal.SIGTTOU}
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        bits = sum(1 << (signum - 1) for signum in wanted)
        mask = ctypes.create_string_buffer(bits.to_bytes(_SIGSET_BYTES, sys.byteorder))
        libc = ctypes.CDLL(None, use_errno=True)
        self._interrupted_by: int | None = None
        self.fd: int = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "signalfd")
        _current = self

    def interrupt(self, signum: int) -> NoReturn:
        """Raise Interrupted for a signal that was read, here and from now on in each `check`."""
        self._interrupted_by = signum
        raise Interrupted(signum)

    def check(self) -> None:
        """Raise Interrupted if a signal that ends processes is pending, or after `interrupt`."""
        if self._interrupted_by is not None:
            raise Interrupted(self._interrupted_by)
        check_pending()

    def read(self) -> list[tuple[int, bool]]:
        """Take the signals that have arrived: (signal, whether a process sent it)."""
        arrived: list[tuple[int, bool]] = []
        while True:
            try:
                info = os.read(self.fd, _SIGINFO.size)
            except BlockingIOError:
                return arrived
            signum, _, code = _SIGINFO.unpack(info)
            arrived.append((signum, code <= 0))  # SI_USER, SI_QUEUE, SI_TKILL; above: the kernel


def check_pending() -> None:
    """Raise Interrupted if a blocked signal that ends processes is pending."""
    arrived = signal.sigpending().intersection(ENDING)
    if arrived:
        raise Interrupted(min(arrived))


def die_of(signum: int) -> None:
    """End this process by a signal, without a core dump."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if signum not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    os.kill(os.getpid(), signum)
    # Only reached for signals whose default is not to end the process.
    os._exit(128 + signum)
