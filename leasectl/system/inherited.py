"""What the parent passed on, restored for commands.

`take` changes what would be in the way of this process: a umask that keeps its owner out of new
files, and a SIGCHLD that is ignored. `restore` gives a forked process back what was inherited, just
before that becomes a command.
"""

from __future__ import annotations

import os
import signal

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
