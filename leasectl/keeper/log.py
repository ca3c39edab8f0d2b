"""The keeper's log."""

from __future__ import annotations

import contextlib
import os

from leasectl.errors import LeaseError
from leasectl.system.clock import Clock, rfc3339
from leasectl.system.own_files import open_own

_LONGEST_BYTES = 1 << 20


def described(error: Exception) -> str:
    """What to log of an error: one that isn't ours says little without its type."""
    return str(error) if isinstance(error, LeaseError) else f"unexpected: {error!r}"


class Log:
    """A log file in the state directory, and one older one. A full disk silences it.

    Args:
        path: The file; its folder stays the same, whatever has its path later.
        clock: Where times come from.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        folder, self._name = os.path.split(path)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._clock = clock
        self._creating = os.O_CREAT

    def write(self, text: str) -> None:
        """Append a line. Only the first creates the file: later, the folder may be going."""
        with contextlib.suppress(OSError):
            fd = self._open(self._creating)
            self._creating = 0
            if os.fstat(fd).st_size > _LONGEST_BYTES:
                os.close(fd)
                here = {"src_dir_fd": self._folder, "dst_dir_fd": self._folder}
                os.replace(self._name, self._name + ".1", **here)
                fd = self._open(os.O_CREAT)
            try:
                line = f"{rfc3339(self._clock.wall())} [{os.getpid()}] {text}\n"
                os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)

    def _open(self, flags: int) -> int:
        return open_own(self._name, flags | os.O_WRONLY | os.O_APPEND, dir_fd=self._folder)
