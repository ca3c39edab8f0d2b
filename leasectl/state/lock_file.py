"""``state.lock``: what is written in the file that writers queue at, which is never removed."""

from __future__ import annotations

import fcntl
import os
import struct

from leasectl.state.database import errors_of
from leasectl.system.lock_wait import flock_exclusive

# Room for a note (`names_files`), and at its end for what was drawn of which block of `fences`: a
# mark, the last fence that was drawn, and the last that may be, 0 if a new block is needed.
_LOCK_BYTES = 8192
_FENCES_AT = _LOCK_BYTES - 64
_FENCES = struct.Struct("<8sQQ")
_FENCES_MARK = b"fences 1"


def open_lock(directory: str) -> int:
    """Open ``state.lock`` with all its room: to write there must not need space on a full disk."""
    path = os.path.join(directory, "state.lock")
    with errors_of(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size < _LOCK_BYTES:
                flock_exclusive(fd)
                if os.fstat(fd).st_size < _LOCK_BYTES:
                    os.pwrite(fd, bytes(_LOCK_BYTES), 0)
                fcntl.flock(fd, fcntl.LOCK_UN)
        except BaseException:
            os.close(fd)
            raise
        return fd


def drawn(lock_fd: int) -> tuple[int, int]:
    """The last fence that was drawn, and the last that may be; zeros where nothing says so."""
    found = os.pread(lock_fd, _FENCES.size, _FENCES_AT)
    # A note of unusual length may have been written over it.
    if not found.startswith(_FENCES_MARK):
        return 0, 0
    _, last, end = _FENCES.unpack(found)
    return last, end


def note_drawn(lock_fd: int, last: int, end: int) -> None:
    os.pwrite(lock_fd, _FENCES.pack(_FENCES_MARK, last, end), _FENCES_AT)
