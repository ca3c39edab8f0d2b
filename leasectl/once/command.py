"""Run the command: capture its output, limit its time, record its result or failure."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Collection
from typing import NamedTuple

from leasectl.errors import LeaseError, NoRoom, NotFound, StateUnwritable
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.once.error_output import ErrorOutput
from leasectl.once.results import Asked, Terms
from leasectl.once.work import TooLarge
from leasectl.run.child import CannotExecute, Child, CommandNotFound, Ending
from leasectl.run.lease_watch import GRACE_AFTER_LOSS_SECONDS
from leasectl.run.leased_command import run_leased
from leasectl.run.supervision import Supervisor
from leasectl.system.clock import Clock
from leasectl.system.signals import SignalDescriptor
from leasectl.text.durations import format_seconds
from leasectl.text.wording import printable

_READ_BYTES = 1 << 16


class Output:
    """The stdout of a command, up to a size.

    Args:
        largest: In bytes; of a longer output the rest is read and discarded.

    Attributes:
        write_fd: The command's stdout.
        is_too_large: There was more.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._parts: list[bytes] = []
        self._size = 0
        self.is_too_large = False

    def fds(self) -> list[int]:
        return [] if self._read_fd == -1 else [self._read_fd]

    def until(self, now: float) -> float | None:
        return None

    def look(self, woken: Collection[int]) -> None:
        if self._read_fd in woken:
            self._read()

    def began(self) -> None:
        """Close our write end, once the command has its own."""
        os.close(self.write_fd)

    def content(self) -> bytes:
        """Return the output of the ended command.

        Its background processes may write on; that isn't waited for.
        """
        while self._read_fd != -1 and not self.is_too_large and self._read():
            pass
        self.close()
        return b"".join(self._parts)

    def close(self) -> None:
        """Stop reading."""
        if self._read_fd != -1:
            os.close(self._read_fd)
            self._read_fd = -1

    def _read(self) -> bool:
        """Read what has come; return whether there may be more by now."""
        try:
            part = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not part:
            self.close()
            return False
        self._size += len(part)
        self.is_too_large = self.is_too_large or self._size > self._largest
        if self.is_too_large:
            self._parts.clear()
        else:
            self._parts.append(part)
        return True


class RunLimit:
    """Ends a command that takes too long, or whose output can't be kept.

    Args:
        child: The command.
        seconds: How long it may take, from now on; None for no limit.
        output: Its output; None if that isn't its result.
        clock: Where times come from.

    Attributes:
        is_over: It has taken too long.
    """

    def __init__(
        self, child: Child, seconds: float | None, output: Output | None, *, clock: Clock
    ) -> None:
        self._child = child
        self._output = output
        self._clock = clock
        self._ends_at = None if seconds is None else clock.elapsed() + seconds
        self._kill_at: float | None = None
        self._has_ended_it = False
        self.is_over = False

    def fds(self) -> list[int]:
        return []

    def until(self, now: float) -> float | None:
        return self._kill_at if self._has_ended_it else self._ends_at

    def look(self, woken: Collection[int]) -> None:
        now = self._clock.elapsed()
        if self._has_ended_it:
            if self._kill_at is not None and now >= self._kill_at:
                self._child.signal(signal.SIGKILL)
                self._kill_at = None
            return
        self.is_over = self._ends_at is not None and now >= self._ends_at
        if self.is_over or (self._output is not None and self._output.is_too_large):
            self._child.signal(signal.SIGTERM)
            self._child.signal(signal.SIGCONT)
            self._kill_at = now + GRACE_AFTER_LOSS_SECONDS
            self._has_ended_it = True  # last, so that a failure above is tried again


TIMED_OUT = 124  # the exit code of timeout(1)


class Came(NamedTuple):
    """The outcome of a command's run.

    Args:
        content: Its result; None if it has failed, or was stopped.
        seconds: How long it took.
        ending: How it ended.
        status: The exit code for waiters that share its failure.
        error: What is wrong, if its ending doesn't say that.
        is_final: Another try would fail too.
        lines: The last that the command wrote to stderr.
    """

    content: bytes | None
    seconds: float
    ending: Ending | None = None
    status: int = 0
    error: LeaseError | None = None
    is_final: bool = False
    lines: str = ""

    def without_result(self, error: LeaseError) -> Came:
        """Return the same as a final failure without a result."""
        return Came(None, self.seconds, status=error.exit_code, error=error, is_final=True)


class WorkCommand:
    """Runs the command of a work under its lease, once.

    Args:
        service: Where the lease comes from.
        asked: The work, and how to do it.
        handle: By which it is held.
        supervisor: Follows the command.
        signals: This process's signals.
        clock: Where times come from.
    """

    def __init__(
        self,
        service: Service,
        asked: Asked,
        handle: Handle,
        *,
        supervisor: Supervisor,
        signals: SignalDescriptor,
        clock: Clock,
    ) -> None:
        self._service = service
        self._asked = asked
        self._handle = handle
        self._supervisor = supervisor
        self._signals = signals
        self._clock = clock
        self._child: Child | None = None
        self._errors: ErrorOutput | None = None
        self._largest = service.values.largest_content

    def run(self, path: str, terms: Terms, *, attempt: int, wait_seconds: float | None) -> Came:
        """Run the command to its end; the lease's guard lives until `let_go`.

        Args:
            path: The file to execute.
            terms: The retry rules of the round.
            attempt: Its number.
            wait_seconds: How long to wait for the lock of the records; None for no limit.

        Raises:
            LeaseLost, Cancelled: The lease was lost, and the command has ended for it.
            Interrupted: A signal arrived before there was a command to forward it to.
        """
        try:
            self._service.values.check_room()
            _remove_left(self._asked.result_file)
        except LeaseError as error:
            if isinstance(error, NoRoom):
                error.args = (f"the command of work {self._asked.work.title} wasn't run: {error}",)
            return Came(None, 0.0, status=error.exit_code, error=error)
        output = Output(self._largest) if self._asked.result_file is None else None
        errors = self._errors = ErrorOutput()
        child = self._child = self._fork(path, output, errors, attempt)
        limit = RunLimit(child, terms.run_limit_seconds, output, clock=self._clock)
        began = self._clock.elapsed()
        try:
            ending = run_leased(
                self._service,
                self._handle,
                self._supervisor,
                child,
                self._asked.plan.name,
                wait_seconds=wait_seconds,
                beside=(limit,) if output is None else (output, limit),
            )
            seconds, lines = self._clock.elapsed() - began, errors.lines()
            came = self._judge(ending, seconds, output, limit, terms)
            return came._replace(lines=lines)
        except (CommandNotFound, CannotExecute) as error:
            return Came(None, 0.0, status=error.exit_code, error=error)
        finally:
            errors.lines()
            if output is not None:
                output.close()

    @property
    def has_begun(self) -> bool:
        """Whether the child was told to become the command."""
        return self._child is not None and self._child.has_begun

    def kill_rest(self) -> None:
        """Kill the processes that a failed command left behind: the next run must not meet them."""
        self._supervisor.settle(self._child)
        if self._child is not None:
            self._child.kill_rest()

    def let_go(self) -> None:
        """End the guard process, after the result is on record."""
        if self._child is not None:
            self._child.let_go()
        if self._errors is not None:
            self._errors.reap()

    def _fork(self, path: str, output: Output | None, errors: ErrorOutput, attempt: int) -> Child:
        names_path = self._service.state.names_path(self._handle.id)
        environ = self._asked.plan.environ_under(self._handle, names_path, attempt)
        stdin = None if os.isatty(0) else os.open(os.devnull, os.O_RDONLY)
        child = Child(
            path,
            self._asked.command,
            environ,
            self._signals,
            ends_with_us=True,
            stdin=stdin,
            stdout=errors.write_fd if output is None else output.write_fd,
            stderr=errors.write_fd,
        )
        if stdin is not None:
            os.close(stdin)
        errors.begun()
        if output is not None:
            output.began()
        return child

    def _judge(
        self, ending: Ending, seconds: float, output: Output | None, limit: RunLimit, terms: Terms
    ) -> Came:
        """Return the outcome of a command that has ended."""
        try:
            if limit.is_over:
                assert terms.run_limit_seconds is not None
                after = format_seconds(terms.run_limit_seconds)
                name = printable(self._asked.plan.name, longest=200)
                error = LeaseError(f"{name} ran for longer than --run-limit {after}; it was ended")
                error.exit_code = TIMED_OUT
                raise error
            content = b"" if output is None else output.content()
            if output is not None and output.is_too_large:
                raise too_large("stdout", self._largest)
            if ending != Ending(0):
                return Came(None, seconds, ending, status_of(ending))
            if self._asked.result_file is not None:
                content = _read_result(self._asked.result_file, self._largest)
            return Came(content, seconds, ending)
        except TooLarge as error:
            return Came(None, seconds).without_result(error)
        except LeaseError as error:
            return Came(None, seconds, status=error.exit_code, error=error)


def status_of(ending: Ending) -> int:
    """Return the exit code for an ending, as a shell gives it."""
    return 128 + ending.signum if ending.signum is not None else ending.code or 0


def _remove_left(filename: str | None) -> None:
    """Remove the result file that an earlier command has left: it isn't the next command's.

    Raises:
        StateUnwritable: It can't be removed, or is a symbolic link, which stays: it may point to a
            file of another owner, like ``/dev/stdout``.
    """
    if filename is None:
        return
    where = f"the result file {printable(filename, longest=500)}"
    try:
        if stat.S_ISLNK(os.lstat(filename).st_mode):
            raise StateUnwritable(
                f"{where} is a symbolic link, so the command wasn't run: name the file itself"
            )
        if stat.S_ISREG(os.stat(filename).st_mode):
            os.unlink(filename)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StateUnwritable(
            f"{where} is there already and can't be removed, so the command wasn't run: {reason}"
        ) from None


def _read_result(filename: str, largest: int) -> bytes:
    """Read the result file of a command, up to so many bytes.

    Raises:
        NotFound: It isn't there, or can't be read.
        TooLarge: It is too large.
    """
    where = f"the result file {printable(filename, longest=500)}"
    try:
        with open(filename, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotFound(f"{where} is not a regular file; have the command write one")
            content = file.read(largest + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NotFound(
            f"the command succeeded, but {where} can't be read: {reason}; have the command write it"
        ) from None
    if len(content) > largest:
        raise too_large(where, largest)
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe may have no writer


def too_large(what: str, largest: int) -> TooLarge:
    """Return the error for a result that is larger than its backend keeps."""
    size = f"{largest >> 20} MiB" if largest >= 1 << 20 else f"{largest >> 10} KiB"
    return TooLarge(
        f"{what} is larger than {size}, the limit for a result on this backend; have the command "
        "store it elsewhere and print its location"
    )
