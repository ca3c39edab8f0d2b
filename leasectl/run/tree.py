"""All processes that a command started.

A subreaper (PR_SET_CHILD_SUBREAPER) becomes the parent of every orphan below it. So a descendant
of a command lives exactly as long as this process has a child that is or contains it.

Keepers are not part of the tree. They serve all jobs of the machine, and a `leasectl` inside the
command may have started one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterable, Iterator

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_KEEPER_ARGUMENTS = [b"-m", b"leasectl.keeper"]


def become_subreaper(*, is_one: bool = True) -> bool:
    """Adopt orphaned descendants from now on, or no longer; return whether the kernel allows it."""
    return prctl(_PR_SET_CHILD_SUBREAPER, int(is_one))


@contextlib.contextmanager
def adopting_orphans() -> Iterator[bool]:
    """Adopt orphaned descendants inside; yield whether the kernel allows it.

    Afterwards the process is as before: one that goes on would otherwise collect every daemon that
    it starts as a zombie.
    """
    before = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    try:
        yield become_subreaper()
    finally:
        become_subreaper(is_one=bool(before.value))


def prctl(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def own_children() -> set[int]:
    """Return the pids of this process's children, zombies included, and of adopted orphans.

    The kernel's list names processes that `hidepid` keeps out of /proc. Children forked by other
    threads are not on it: those threads wait for them.

    Raises:
        OSError: /proc is not mounted.
    """
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return {int(each) for each in file.read().split()}
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {child for child, parent in _parents().items() if parent == pid}


def has_children() -> bool:
    """Return whether any child is left, dead or alive; needs no /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap(pids: Iterable[int]) -> None:
    """Collect those children among some that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def tree_of(roots: Collection[int]) -> set[int]:
    """Return roots and all their visible descendants, without keepers."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        below.setdefault(parent, []).append(child)
    found: set[int] = set()
    ahead = list(roots)
    while ahead:
        pid = ahead.pop()
        if pid not in found and not is_keeper(pid):
            found.add(pid)
            ahead += below.get(pid, ())
    return found


def send(pids: Iterable[int], signum: int) -> set[int]:
    """Signal processes; return those that belong to another user."""
    refused = set()
    for pid in pids:
        try:
            os.kill(pid, signum)
            if signum == signal.SIGTERM:
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
        except PermissionError:
            refused.add(pid)
    return refused


def is_keeper(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).split(b"\0")[1:3] == _KEEPER_ARGUMENTS
    except OSError:
        return False


def _parents() -> dict[int, int]:
    """Map each visible process to its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name, in parentheses, may have any character in it.
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found
