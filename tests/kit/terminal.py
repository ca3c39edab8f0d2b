"""A terminal: a command in its foreground, keys to press, and what is shown."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.kit.waits import PATIENCE_SECONDS, give_up, wait_readable

CTRL_C = b"\x03"
CTRL_Z = b"\x1a"
CTRL_BACKSLASH = b"\x1c"


class Terminal:
    """A terminal that a command of its own session runs on.

    Args:
        argv: The command; its first word is a path.
        env: Its environment.
        cwd: Where it runs.

    Attributes:
        pid: The command's.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(argv[0], list(argv), env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        self._unread = ""

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def enter(self, line: str) -> None:
        self.type(f"{line}\n".encode())

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until something is shown; the match's string begins where the last one ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = re.search(pattern, self._unread)
            if found:
                self._unread = self._unread[found.end() :]
                return found
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._fd], [], [], left)[0]:
                give_up(f"{pattern} on the terminal, which shows {self._unread!r}")
            self._unread += os.read(self._fd, 4096).decode("utf-8", "replace")

    def close(self) -> None:
        """Close the window."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def ending(self) -> int:
        """Wait for the command's end; a negative code is the signal that ended it."""
        # What is written to a terminal that nobody reads blocks its writer at its end.
        while self._fd >= 0:
            wait_readable(self._fd, what="the end of a command on a terminal")
            try:
                os.read(self._fd, 4096)
            except OSError:
                break
        self.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextlib.contextmanager
def terminal(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Iterator[Terminal]:
    """A `Terminal` that is closed afterwards, and its command gone."""
    found = Terminal(argv, env, cwd)
    try:
        yield found
    finally:
        found.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.pid, 0)
