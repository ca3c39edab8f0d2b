"""The processes whose end ends a wait.

A caller is the parent process, as a rule the script. Some parents only stand in for the script: a
subshell of it, or a program such as timeout(1) that waits for another. Their parents are callers
too, and so on.

A process is *detached* if it was started with nohup(1), so that it ignores SIGHUP, or with
setsid(1), so that it leads its session. Such a process has no callers; nor has one whose parent is
process 1 of its pid namespace, or lives in another one.

A parent that ends is noticed whenever it ends:

==============================  ============================================================
it ends                         and is noticed because
==============================  ============================================================
before this process looks       the parent is another than at the start of this process; or
                                it is of another session, as only a foster parent is, or the
                                process with which `run` and `once` watch over a command: that
                                has set the signal that its end sends to the command
while this process looks        the parent is another after its pidfd was opened
later                           the pidfd becomes readable
==============================  ============================================================

`take` changes what the parent passed on and this process couldn't work with: a umask that keeps
its owner out of new files, and a SIGCHLD that is ignored. `restore` gives a forked process back
what was inherited, just before it becomes a command.
"""

from __future__ import annotations

import contextlib
import os
import signal

from leasectl.errors import Cancelled, LeaseError
from leasectl.model import Process
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.process import open_pidfd, pidfd_of

_PR_GET_PDEATHSIG = 2

# Programs that start another and wait for it, without a purpose of their own.
_WRAPPERS = frozenset((b"timeout", b"time", b"sudo", b"flock", b"strace"))


class CallerEnded(Cancelled):
    """A process that a wait was for has ended."""


def watch_callers() -> list[Interrupt]:
    """Return what ends a wait when a caller ends; nothing for a process that is detached.

    Raises:
        CallerEnded: A caller has ended already.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or os.getsid(0) == os.getpid():
        return []
    parent = os.getppid()
    if parent == 0:
        return []
    if parent != parent_pid():
        raise _ended(parent_pid())
    if not (_is_of_our_session(parent) or _dies_with_parent()):
        raise _ended(None)  # before this process could see which it was
    found: list[Interrupt] = []
    child, pid = os.getpid(), parent
    while pid > 1:
        # Without pidfds, or a descriptor for one more, the wait is like that of a detached process.
        with contextlib.suppress(LeaseError, OSError):
            found.append(_watch(pid))
        if _parent_of(child) not in (pid, 0):  # 0: it is watched, and no descriptor is left to look
            raise _ended(pid)
        child, pid = pid, _parent_of(pid)
        if not _stands_in(child, pid) or os.getsid(child) == child:
            break
    return found


def watch_guard(guard: Process | None) -> list[Interrupt]:
    """Return what ends a wait when its guard ends; None stands for the callers.

    Raises:
        Cancelled: It has ended already.
    """
    if guard is None:
        return watch_callers()
    pidfd = open_pidfd(guard)
    if pidfd is None:
        raise Cancelled(f"guard {guard.pid} has ended")

    def raise_ended() -> None:
        raise Cancelled(f"guard {guard.pid} ended while the request waited")

    return [Interrupt(pidfd, READABLE, raise_ended)]


def _watch(pid: int) -> Interrupt:
    def raise_ended() -> None:
        raise _ended(pid)

    return Interrupt(pidfd_of(pid), READABLE, raise_ended)


def _ended(pid: int | None) -> CallerEnded:
    which = "" if pid is None else f" ({pid})"
    return CallerEnded(
        "stopped waiting, because the process that started this command has "
        f"ended{which}; to wait anyway, start it with nohup or setsid"
    )


def _is_of_our_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return False


def _dies_with_parent() -> bool:
    """Return whether the kernel kills this process when its parent ends; no child inherits that."""
    import ctypes  # few processes need it

    signum = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(signum), 0, 0, 0)
    return signum.value == signal.SIGKILL


def _stands_in(pid: int, parent: int) -> bool:
    """Return whether a process stands in for its parent: a subshell, or a program that waits."""
    if _read(pid, "comm").strip() in _WRAPPERS:
        return True
    command = _read(pid, "cmdline")
    return bool(command) and command == _read(parent, "cmdline")


def ancestors(pid: int) -> set[int]:
    """Return the pids of a process and of its ancestors, as far as /proc shows them."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = _parent_of(pid)
    return found


def _parent_of(pid: int) -> int:
    """Return the pid of a process's parent; 0 if it can't be seen."""
    if pid == os.getpid():
        return os.getppid()
    # The name, in parentheses, may have any character in it.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


# Python ignores these for itself before any code runs, and doesn't tell what was inherited.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

_children_were_ignored = False
_umask: int | None = None
_parent_pid = 0


def take() -> None:
    """Note what was inherited, and change what this process couldn't work with."""
    global _children_were_ignored, _parent_pid, _umask
    _parent_pid = os.getppid()
    _umask = os.umask(0o077)
    os.umask(_umask & 0o077)
    # The kernel keeps no exit status of children that end while it is ignored.
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _children_were_ignored = True


def parent_pid() -> int:
    """Return the parent's pid at the start of this process."""
    return _parent_pid or os.getppid()


def restore() -> None:
    """In a forked process, restore what `take` and Python's start have changed."""
    if _umask is not None:
        os.umask(_umask)
    if _children_were_ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ignored = _ignored_by_parent()
    for signum in _IGNORED_BY_PYTHON:
        signal.signal(signum, signal.SIG_IGN if signum in ignored else signal.SIG_DFL)


def _ignored_by_parent() -> set[int]:
    """Return which of the signals that Python ignores the parent ignores on purpose.

    A child inherits what its parent ignores. A parent that ignores both is most likely a program in
    Python itself, which restores the defaults in what it starts.
    """
    if not _parent_pid:
        return set()
    try:
        with open(f"/proc/{_parent_pid}/status", "rb") as file:
            (mask,) = (int(line.split()[1], 16) for line in file if line.startswith(b"SigIgn:"))
    except (OSError, ValueError):
        return set()
    found = {int(signum) for signum in _IGNORED_BY_PYTHON if mask >> (signum - 1) & 1}
    return found if len(found) < len(_IGNORED_BY_PYTHON) else set()
