"""Run a program for its output, limited in time and size."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from leasectl.errors import Interrupted, Unanswered
from leasectl.system import signals
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import READABLE, Interrupt, sleep

_PIECE_BYTES = 1 << 16
# The last part of stderr is kept: a traceback has the error at its end.
_LONGEST_WORDS_BYTES = 1 << 14


class Ended(NamedTuple):
    """How a program ended.

    Args:
        why: It exited, was ended by a signal, took too long, or printed too much.
        number: The exit code, or the signal's number; else 0.
        printed: On its standard output.
        said: On its standard error, the last part.
    """

    why: Literal["exit", "signal", "time", "length"]
    number: int
    printed: bytes
    said: str


def run_program(
    path: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    seconds: float,
    longest_bytes: int,
) -> Ended:
    """Run a program until it ends; it can't ask the user anything.

    It has a session of its own, and no signal is blocked or ignored in it. The processes that it
    started go on when it ends by itself, and end with it when it is ended.

    Args:
        path: Of the program.
        argv: Its name and arguments.
        environment: Its variables.
        seconds: How long it may take, suspend included.
        longest_bytes: How much it may print.

    Raises:
        OSError: It can't be started.
        Unanswered: A signal has arrived meanwhile, see `signals.pause`.
    """
    with contextlib.ExitStack() as opened:
        with contextlib.ExitStack() as write_ends:
            output = _Pipe(opened, write_ends, longest_bytes)
            error = _Pipe(opened, write_ends, None)
            pid = os.posix_spawn(
                path,
                list(argv),
                dict(environment),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.write_fd, 1),
                    (os.POSIX_SPAWN_DUP2, error.write_fd, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[*signals.ENDING, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
            )
        try:
            why = _follow(_open_pidfd(pid, opened), (output, error), seconds)
        finally:
            status = _end(pid)
    if why != "exit":
        return Ended(why, 0, bytes(output.read), error.words())
    code = os.waitstatus_to_exitcode(status)
    kind: Literal["exit", "signal"] = "signal" if code < 0 else "exit"
    return Ended(kind, abs(code), bytes(output.read), error.words())


class _Pipe:
    """A pipe for a program's output, with what has been read."""

    def __init__(
        self,
        opened: contextlib.ExitStack,
        write_ends: contextlib.ExitStack,
        longest_bytes: int | None,
    ) -> None:
        self.read = bytearray()
        self._longest_bytes = longest_bytes
        self.fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        opened.callback(os.close, self.fd)
        write_ends.callback(os.close, self.write_fd)
        os.set_blocking(self.fd, False)
        self.is_over = False

    def drain(self) -> bool:
        """Read what has come; return whether it is too much."""
        with contextlib.suppress(BlockingIOError):
            while True:
                piece = os.read(self.fd, _PIECE_BYTES)
                if not piece:
                    self.is_over = True
                    return False
                self.read += piece
                if self._longest_bytes is None:
                    del self.read[:-_LONGEST_WORDS_BYTES]
                elif len(self.read) > self._longest_bytes:
                    return True
        return False

    def words(self) -> str:
        return self.read.decode("utf-8", "replace")


def _open_pidfd(pid: int, opened: contextlib.ExitStack) -> int | None:
    """Return a descriptor that is readable when a child has ended; None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    opened.callback(os.close, fd)
    return fd


def _end(pid: int) -> int:
    """End a child, if it hasn't ended, with all of its session; return its exit status.

    Returns:
        0 where the status is unknown: where this process began with children ignored.
    """
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            os.killpg(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ChildProcessError, ProcessLookupError):
        return 0


def _follow(
    pidfd: int | None, pipes: Sequence[_Pipe], seconds: float
) -> Literal["exit", "time", "length"]:
    """Read until it has ended."""
    until = boottime_seconds() + seconds
    with _interrupts() as interrupts:
        while True:
            fds = {pipe.fd for pipe in pipes if not pipe.is_over}
            if pidfd is not None:
                fds.add(pidfd)
            elif not fds:
                return "exit"
            woken = sleep(wake_fds=fds, interrupts=interrupts, until=until)
            too_much = [pipe.drain() for pipe in pipes]
            if any(too_much):
                return "length"
            if pidfd in woken:
                return "exit"
            if not woken:
                return "time"


@contextlib.contextmanager
def _interrupts() -> Iterator[Sequence[Interrupt]]:
    """Yield the interrupts of the wait: a signal, unless one came before, which is why we clean up.

    Only the main thread has any, since signals are for it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    current = signals.current() if is_main else None
    try:
        if current is not None:
            current.check()
    except Interrupted:
        current = None
    if current is None:
        yield ()
        return
    try:
        yield (Interrupt(current.fd, READABLE, current.check),)
    except Interrupted as interrupted:
        raise Unanswered(interrupted.signum) from None
