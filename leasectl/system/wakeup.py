"""A descriptor by which a thread ends a sleep."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from leasectl.system.poll import is_readable

_ONE = (1).to_bytes(8, sys.byteorder)  # the format of an eventfd; a pipe takes any bytes


class Wakeup:
    """A wake-up for one sleeper. Set twice before it is cleared is set once.

    Attributes:
        fd: Readable while it is set.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):  # one descriptor instead of two, from Python 3.10 on
            self.fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._is_closed = False

    def set(self) -> None:
        """End the sleep. Any thread may call this, also after the close."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is set already
            if not self._is_closed:  # else the number may be another file's
                os.write(self._write_fd, _ONE)

    def wait(self, seconds: float) -> bool:
        """Sleep until it is set, or for so long; return whether it is."""
        return is_readable(self.fd, seconds)

    def clear(self) -> None:
        """Reset it, before the sleeper looks at what has come."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def close(self) -> None:
        """Close its descriptor."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for fd in {self.fd, self._write_fd}:
                    os.close(fd)
