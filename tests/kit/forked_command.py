"""A forked command, as its starter sees it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import TextIO


class Command:
    """A command that was forked; to be used as a ``subprocess.Popen`` that captures text.

    Args:
        args: Its name and arguments.
        pid: Its process.
        status: Where the server says how it ended.
        stdout: What it prints; None where that isn't captured.
        stderr: Likewise.
    """

    def __init__(
        self,
        args: Sequence[str],
        pid: int,
        status: TextIO,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.args = args
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._status = status
        # Whoever wants to end it may ask while another waits for its end.
        self._status_lock = threading.Lock()

    def poll(self) -> int | None:
        """How it ended, a negative code for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        with self._status_lock:
            if self.returncode is not None:
                return self.returncode
            said = os.dup(self._status.fileno())
        try:
            if not select.select([said], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        finally:
            os.close(said)
        with self._status_lock:
            if self.returncode is None:
                self.returncode = int(self._status.readline())
                self._status.close()
            return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it prints and wait for its end."""
        deadline = time.monotonic() + (1e6 if timeout is None else timeout)
        streams = [each for each in (self.stdout, self.stderr) if each and not each.closed]
        read = {each.fileno(): b"" for each in streams}
        unread = set(read)
        while unread:
            remaining = deadline - time.monotonic()
            readable = select.select([*unread], [], [], max(0.0, remaining))[0]
            if not readable:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            for fd in readable:
                chunk = os.read(fd, 1 << 16)
                read[fd] += chunk
                if not chunk:
                    unread.remove(fd)
        self.wait(max(0.0, deadline - time.monotonic()))
        said = {
            each: _text(read[each.fileno()], each.encoding) for each in streams if not each.closed
        }
        for each in streams:
            each.close()
        out, err = (said.get(each, "") if each else "" for each in (self.stdout, self.stderr))
        return out, err

    def send_signal(self, signum: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _text(data: bytes, encoding: str) -> str:
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
