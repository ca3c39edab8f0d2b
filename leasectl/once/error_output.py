"""Pass a command's stderr on, and keep its last lines for the waiters.

A process of its own does this. So a stderr without a reader blocks the command, as it would without
`leasectl`, and never the process that renews the lease. Processes that the command leaves running
can write on after `leasectl` has ended: this process ends with the last of them.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import NoReturn

from leasectl.system.background import close_all_but
from leasectl.system.poll import is_readable
from leasectl.text.wording import printable

_MOST_LINES, _LONGEST_LINE = 10, 200
_LONGEST_BYTES = 4096  # a pipe takes so much in one write
_READ_BYTES = 1 << 16
# How long to wait for the rest of the output, once the command has ended.
_PASS_ON_SECONDS = 2.0


def safe_lines(text: str) -> str:
    """Return the last lines of a text, safe to show, with newlines between them."""
    shown = [printable(each.rstrip(), longest=_LONGEST_LINE) for each in text.splitlines()]
    return "\n".join([each for each in shown if each][-_MOST_LINES:])


class ErrorOutput:
    """The stderr of one command, on its way to ours.

    Attributes:
        write_fd: The command's stderr. It is our own if that is a terminal, or if no process can be
            started; then no lines are kept.
    """

    def __init__(self) -> None:
        self.write_fd = 2
        self._ask = self._answer = -1
        if os.isatty(2):
            return
        opened: list[int] = []
        try:
            for _ in range(3):
                opened += os.pipe()
            pid = os.fork()
        except OSError:
            for each in opened:
                os.close(each)
            return
        source, self.write_fd, asked, self._ask, self._answer, answer = opened
        if pid == 0:
            _pass_on(source, asked, answer)
        for each in (source, asked, answer):
            os.close(each)
        self._pid = pid

    def begun(self) -> None:
        """Close our end, once the command has its own."""
        if self.write_fd != 2:
            os.close(self.write_fd)
            self.write_fd = 2

    def lines(self) -> str:
        """Wait until the output of the ended command is passed on, and return its last lines.

        There are none if our stderr takes no output in time.
        """
        if self._answer == -1:
            return ""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._ask, b"?")
        is_answered = is_readable(self._answer, _PASS_ON_SECONDS)
        output = os.read(self._answer, _LONGEST_BYTES) if is_answered else b""
        os.close(self._ask)
        os.close(self._answer)
        self._answer = -1
        return safe_lines(output.decode("utf-8", "replace"))

    def reap(self) -> None:
        """Collect the process, if it has ended."""
        with contextlib.suppress(AttributeError, ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)


def _pass_on(source: int, asked: int, answer: int) -> NoReturn:
    """In a forked process: copy a pipe to stderr until its last writer ends.

    Args:
        source: The pipe.
        asked: A pipe, written to when the last bytes are wanted; our starter's children hold it
            open, so its end would tell nothing.
        answer: Where these are written then, once nothing is left to be copied.
    """
    try:
        os.setsid()  # a signal to the command's process group must not end it before the last lines
        close_all_but((source, asked, answer))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        last, is_asked = b"", False
        wakes = select.poll()  # select(2) takes no descriptor above 1023
        wakes.register(source, select.POLLIN)
        wakes.register(asked, select.POLLIN)
        while True:
            if source in dict(wakes.poll()):
                part = os.read(source, _READ_BYTES)
                if not part:
                    break
                last = (last + part)[-_LONGEST_BYTES:]
                while part:
                    part = part[os.write(2, part) :]
            else:
                _answer(answer, last)
                is_asked = True
                wakes.unregister(asked)
        if not is_asked:
            _answer(answer, last)
    finally:
        os._exit(0)


def _answer(answer: int, last: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # our starter was killed
        os.write(answer, last)
    os.close(answer)
