"""What the keeper did, a line an event."""

from __future__ import annotations

import contextlib
import os

from leasectl.system.clock import Clock, rfc3339

_LONGEST_BYTES = 1 << 20


class Log:
    """A log file in the state directory, and one older one. A full disk silences it.

    Args:
        path: The file.
        clock: Where times come from.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def write(self, text: str) -> None:
        """Append a line."""
        with contextlib.suppress(OSError):
            if os.path.exists(self._path) and os.path.getsize(self._path) > _LONGEST_BYTES:
                os.replace(self._path, self._path + ".1")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o600)
            try:
                line = f"{rfc3339(self._clock.wall())} [{os.getpid()}] {text}\n"
                os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)
