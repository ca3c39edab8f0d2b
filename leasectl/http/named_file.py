"""Files that a variable of the environment or an option names: certificates, keys, passwords."""

from __future__ import annotations

import os
import time

from leasectl.errors import CorruptState, FileUnreadable
from leasectl.text.printable import printable
from leasectl.typed.tuples import NamedTuple

_LONGEST_BYTES = 16 << 20
_PIECE_BYTES = 1 << 16
# What is no file, like a pipe or a terminal, may never say anything.
_LONGEST_WAIT_SECONDS = 5.0


class NamedFile(NamedTuple):
    """A file, with what messages about it say.

    Args:
        what: It is, like "user file".
        path: Where it is.
        named_by: The variable or the option that names it.
    """

    what: str
    path: str
    named_by: str

    def read(self, longest_bytes: int = _LONGEST_BYTES) -> bytes:
        """Read all of it, or its first so many bytes.

        Raises:
            FileUnreadable: It isn't there, may not be read, or is none that ends.
        """
        try:
            # A pipe that nobody writes to would be waited for at once.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                return _read(fd, longest_bytes)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        except ValueError as error:  # of a NUL, or what no file system can write
            raise self._unreadable("no file can be called so") from error

    def _unreadable(self, why: str) -> FileUnreadable:
        return FileUnreadable(f"{self}: {why}; {self.named_by} must name one that can be read")

    def refused(self, what: str, wanted: str = "does") -> CorruptState:
        """The error for a file that isn't what it should be; says nothing of what is in it."""
        return CorruptState(f"{self} {what}; {self.named_by} must name one that {wanted}")

    def __str__(self) -> str:
        return f"{self.what} {printable(self.path, longest=500)}"


def _read(fd: int, longest_bytes: int) -> bytes:
    pieces, left, until = [], longest_bytes, None
    while left:
        try:
            piece = os.read(fd, min(left, _PIECE_BYTES))
        except BlockingIOError:
            until = until or time.monotonic() + _LONGEST_WAIT_SECONDS
            _wait_for_more(fd, until - time.monotonic())
            continue
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _wait_for_more(fd: int, seconds: float) -> None:
    from leasectl.system.poll import is_readable

    if not is_readable(fd, max(0.0, seconds)):
        raise TimeoutError(0, f"its end didn't come within {_LONGEST_WAIT_SECONDS:g} s")
