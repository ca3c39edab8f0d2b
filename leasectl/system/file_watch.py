"""A descriptor that tells when a file is removed, moved or replaced.

inotify tells it: the standard library has nothing else that is told of a folder's own move, and a
waiter makes no system call while nothing changes for it. ctypes is loaded here, since only a
process that is about to sleep needs it.

A user has few inotify instances, 128 unless the machine's owner sets more. Without one, a timer
has the files looked at every few seconds instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable

_LOOK_SECONDS = 5
# Of <sys/inotify.h>. Unlinking a file that is open changes its attributes, the number of its links.
_IN_ATTRIB, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x4, 0x400, 0x800
_IN_CLOEXEC, _IN_NONBLOCK = os.O_CLOEXEC, os.O_NONBLOCK
_CLOCK_MONOTONIC = 1


class FileWatch:
    """Watches files that are there. Readable means: something may have become of one of them.

    Args:
        paths: Which, files or folders.

    Attributes:
        fd: Readable then; None where the system has neither inotify nor timers for this process.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        libc = ctypes.CDLL(None)
        self.fd = _inotify(libc, paths)
        if self.fd is None:
            self.fd = _timer(libc)

    def clear(self) -> None:
        """Get ready for the next change; the caller looks at the files after this."""
        if self.fd is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 4096)

    def close(self) -> None:
        """Watch no longer."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _inotify(libc: ctypes.CDLL, paths: Iterable[str]) -> int | None:
    fd = libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
    if fd < 0:
        return None
    for path in paths:
        mask = _IN_DELETE_SELF | _IN_MOVE_SELF
        if not os.path.isdir(path):  # for a folder, it would report each file in it
            mask |= _IN_ATTRIB
        if libc.inotify_add_watch(fd, os.fsencode(path), ctypes.c_uint32(mask)) < 0:
            os.close(fd)
            return None
    return int(fd)


def _timer(libc: ctypes.CDLL) -> int | None:
    fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        return None
    # Two times, each of seconds and nanoseconds: the interval, and until the first.
    times = (ctypes.c_long * 4)(_LOOK_SECONDS, 0, _LOOK_SECONDS, 0)
    if libc.timerfd_settime(fd, 0, times, None) < 0:
        os.close(fd)
        return None
    return int(fd)
