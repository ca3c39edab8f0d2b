"""Start a process that goes on in the background, as ssh-agent does.

The starter waits until the process works, prints what that has to say, and ends. A process whose
message was printed can be ended by its reader; one whose message could not be printed ends itself.
"""

from __future__ import annotations

import contextlib
import os

_CHUNK_BYTES = 4096


class Background:
    """Forks this process: `is_child` tells which of the two this one is.

    Create it before there are threads, or files that must not be shared.

    Attributes:
        pid: Of the child.
        is_child: This process is the child. It has a session of its own, and only the first three
            of the files that were open.
    """

    def __init__(self) -> None:
        self._answer_fd, telling = os.pipe()
        confirmed, self._confirm_fd = os.pipe()
        forked = os.fork()
        self.is_child = forked == 0
        self.pid = forked or os.getpid()
        if self.is_child:
            self._answer_fd, self._confirm_fd = telling, confirmed
            os.setsid()
            close_all_but((telling, confirmed))
        else:
            os.close(telling)
            os.close(confirmed)

    # ---- in the starter

    def wait(self) -> str:
        """Return the child's message, once it works; empty if it has ended instead."""
        said = b""
        while True:
            chunk = os.read(self._answer_fd, _CHUNK_BYTES)
            if not chunk:
                return said.decode("utf-8", "surrogateescape")
            said += chunk

    def confirm(self) -> None:
        """Tell the child that its message was printed."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._confirm_fd, b".")

    def exit_code(self) -> int:
        """Wait until the child has ended; return its exit code, as a shell does."""
        _, status = os.waitpid(self.pid, 0)
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    # ---- in the child

    def tell(self, text: str) -> bool:
        """Leave the starter's terminal and folder, and give it the message that it prints.

        Returns:
            Whether it was printed: else no reader knows of this process.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.close(null)
        os.chdir("/")
        telling, confirmed = self._answer_fd, self._confirm_fd
        try:
            os.write(telling, text.encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            return False
        os.close(telling)
        was_passed_on = bool(os.read(confirmed, 1))
        os.close(confirmed)
        return was_passed_on


def close_all_but(kept: tuple[int, ...]) -> None:
    """Close all descriptors of this process but the first three and some others."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)
