"""Open files under names that others may have planted.

A path is opened without following a link and without waiting for the other end of a FIFO, and
used only if it leads to a regular file of this user. New content goes into a new file, which is
then renamed over the old name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_own(path: str, flags: int, *, dir_fd: int | None = None) -> int:
    """Open a regular file of this user; O_CREAT makes it with mode 0600.

    Args:
        path: Its name.
        flags: As for os.open; O_TRUNC takes effect only once the file was checked.
        dir_fd: The folder that a relative path starts from.

    Raises:
        OSError: It can't be opened, or is anything else.
    """
    fd = os.open(path, flags & ~os.O_TRUNC | _SAFE, 0o600, dir_fd=dir_fd)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EPERM, "not a regular file", path)
        if found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it belongs to user {found.st_uid}", path)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_own(path: str, longest_bytes: int, *, dir_fd: int | None = None) -> bytes:
    """Read a regular file of this user, up to so many bytes; OSError as `open_own`."""
    with open(open_own(path, os.O_RDONLY, dir_fd=dir_fd), "rb", buffering=0) as file:
        return file.read(longest_bytes) or b""


def write_new(path: str, content: bytes, *, dir_fd: int | None = None) -> None:
    """Write a file, mode 0600, that replaces what has its name; leave nothing if that fails.

    For a temporary name only: a reader may see half of the content.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
    try:
        fd = os.open(path, flags, 0o600, dir_fd=dir_fd)
    except FileExistsError:
        os.unlink(path, dir_fd=dir_fd)
        fd = os.open(path, flags, 0o600, dir_fd=dir_fd)
    try:
        if os.write(fd, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path, dir_fd=dir_fd)
        raise
    finally:
        os.close(fd)
