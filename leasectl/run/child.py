"""A child process that waits before it becomes the command."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from leasectl.errors import LeaseError
from leasectl.run import tree
from leasectl.run.warden import CONTINUE, FOR_GOOD, KILL, LET_GO
from leasectl.system import callers
from leasectl.system.clock import boottime_seconds
from leasectl.system.process import pidfd_of
from leasectl.system.signals import SignalDescriptor
from leasectl.text.wording import printable

# Children of this process that a `Child` waits for.
_awaited: set[int] = set()


class CannotExecute(LeaseError):
    """The command is there but can't be executed."""

    exit_code = 126


class CommandNotFound(LeaseError):
    """There is no such command."""

    exit_code = 127


@dataclass(frozen=True)
class Ending:
    """How a command ended: its exit code, or the signal that ended it."""

    code: int | None
    signum: int | None = None

    def describe(self) -> str:
        """Say it for people."""
        if self.signum is not None:
            return f"ended by {signal.Signals(self.signum).name}"
        return f"exit code {self.code}"


class Child:
    """A forked process that waits for `start` before it becomes the command.

    If this process dies before, so does the child.

    Args:
        path: The file to execute.
        argv: The command and its arguments.
        environ: Its environment.
        signals: Whose signal mask on entry the command gets.
        ends_with_us: Whenever this process ends, so does all that the command has started; else
            that lives on, once it has begun. Such a child is there until `let_go`, so that it can
            be a guard until what has come of the command is recorded.
        stdin: What the command reads from; None for what this process reads from.
        stdout, stderr: What the command writes to; None for what this process writes to.

    Raises:
        LeaseError: The end of a process isn't told here, or no process can be started.

    Attributes:
        pidfd: Of the child.
        end_fd: Readable when the command has ended.
        has_begun: It was told to become the command.
        is_settled: It never began, or nothing that has to end with it is left. Only then may the
            lease that it runs under be released.
    """

    def __init__(
        self,
        path: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        signals: SignalDescriptor,
        *,
        ends_with_us: bool = False,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self._others = _children_by_now()
        opened: list[int] = []
        try:
            for _ in range(4 if ends_with_us else 2):
                opened += os.pipe()
            pid = os.fork()
        except OSError as error:
            for each in opened:
                os.close(each)
            name = printable(argv[0], longest=200)
            raise LeaseError(f"can't start {name}: {error.strerror}") from error
        go_read, self._go, self._failure, failure_write = opened[:4]
        life_read, self._life, self._told, told_write = opened[4:] or (-1, -1, -1, -1)
        self._argv = argv
        self._deadline: float | None = None
        self._is_there = False  # the warden, also after the command's end
        self.has_begun = False
        self.is_settled = False
        self.pid: int = pid
        self._ends_with_us = ends_with_us
        if pid == 0:
            started = False
            try:
                os.close(self._go)
                started = bool(os.read(go_read, 1))
                if started:
                    become = partial(_become, path, argv, environ, signals.mask_before)
                    for fd, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
                        if fd is not None:
                            os.dup2(fd, number)
                    if ends_with_us:
                        os.close(self._life)
                        _have_watched_over(become, life_read, told_write, failure_write, signals)
                    become()
            except OSError as error:
                os.write(failure_write, str(error.errno).encode())
            finally:
                os._exit(126 if started else 0)
        os.close(go_read)
        os.close(failure_write)
        if ends_with_us:
            os.close(life_read)
            os.close(told_write)
        _awaited.add(pid)
        self.pidfd = -1
        try:
            self.pidfd = pidfd_of(self.pid)
        except OSError as error:
            self.abandon()
            name = printable(argv[0], longest=200)
            raise LeaseError(f"can't start {name}: {error.strerror}") from error
        except BaseException:
            self.abandon()
            raise
        self.end_fd = self._told if ends_with_us else self.pidfd

    def start(self) -> None:
        self.has_begun = True
        with contextlib.suppress(BrokenPipeError):  # killed already; the next look notices it
            os.write(self._go, b"!")
        os.close(self._go)

    def abandon(self) -> None:
        """End the process before it has become the command."""
        os.close(self._go)
        os.close(self._failure)
        self._forget()
        os.waitpid(self.pid, 0)
        _awaited.discard(self.pid)
        self.is_settled = True

    def signal(self, signum: int) -> bool:
        """Signal the command; return False if it belongs to another user."""
        if signum == signal.SIGKILL and self._life != -1:
            self._want(KILL)  # the whole tree, not only the warden
            return True
        if signum == signal.SIGCONT and self._life != -1:
            self._want(CONTINUE)  # the warden passes on other signals
            return True
        try:
            signal.pidfd_send_signal(self.pidfd, signum)
        except ProcessLookupError:  # ended; the next look notices it
            pass
        except PermissionError:
            return False
        return True

    @property
    def has_warden(self) -> bool:
        """Whether a process of its own follows the command's tree."""
        return self._told != -1

    def descendants(self) -> set[int]:
        """Return what lives of the command's tree, without the command; adopted orphans included.

        Processes that this one had before, and those that other children follow, don't count.
        """
        if self.has_warden:
            return set()
        roots = tree.own_children() - self._others - (_awaited - {self.pid})
        return tree.tree_of(roots) - {self.pid}

    def reap_orphans(self) -> None:
        """Collect orphans that have ended."""
        others = set() if os.getpid() == 1 else self._others
        tree.reap(tree.own_children() - others - _awaited)

    def kill_at(self, deadline: float | None) -> None:
        """Kill the command at a time, also if this process is stopped by then.

        Only for a command that ends with this process.

        Args:
            deadline: CLOCK_BOOTTIME; None for never.
        """
        if self._life != -1 and deadline != self._deadline:
            self._deadline = deadline
            self._want(FOR_GOOD if deadline is None else b"%.3f" % deadline)

    def is_overdue(self) -> bool:
        """Tell whether it may have been killed by now since its time was over."""
        return self._deadline is not None and boottime_seconds() >= self._deadline

    def reap(self) -> Ending:
        """Collect how it ended; CommandNotFound or CannotExecute when it never became anything."""
        line = self._read_line() if self._told != -1 else b""
        status = int(line) if line else os.waitpid(self.pid, 0)[1]
        self._is_there = bool(line)
        if not line:
            _awaited.discard(self.pid)
        failure = os.read(self._failure, 16)
        os.close(self._failure)
        if not line:
            self._forget()
        if failure:
            raise _cannot(self._argv[0], int(failure))
        if os.WIFSIGNALED(status):
            return Ending(None, os.WTERMSIG(status))
        return Ending(os.WEXITSTATUS(status))

    def kill_rest(self) -> None:
        """Kill what a command has left behind that has ended, and wait until it is gone."""
        if self._is_there:
            self._want(KILL)
            while self._read_line() not in (KILL, b""):
                pass
        elif self._ends_with_us and not self.has_warden:  # killed: we adopted its children
            while rest := self.descendants():
                tree.send(rest, signal.SIGKILL)
                self.reap_orphans()
                time.sleep(0.05)

    def let_go(self) -> None:
        """After the command's end: have what looks after one that ends with us be gone, too."""
        if self._is_there:
            self._is_there = False
            self._want(LET_GO)
            self._forget()
            os.waitpid(self.pid, 0)
            _awaited.discard(self.pid)

    def _want(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # killed already
            os.write(self._life, line + b"\n")

    def _read_line(self) -> bytes:
        """A line; nothing if who would write it has been killed."""
        line = b""
        while not line.endswith(b"\n"):
            got = os.read(self._told, 1)
            if not got:
                return b""
            line += got
        return line.strip()

    def _forget(self) -> None:
        """Close what is open; all end that is to end with us, if any of it is left."""
        for fd in (self.pidfd, self._told, self._life):
            if fd != -1:
                os.close(fd)
        self._told = self._life = -1


def _children_by_now() -> set[int]:
    try:
        return tree.own_children()
    except OSError:
        return set()


def find_command(name: str, search_path: str) -> str:
    """Find the file that a command's name means, as execvp(3) does.

    Args:
        name: A path with a slash in it, or a name to look up.
        search_path: Folders with colons between them.

    Raises:
        CommandNotFound: There is none.
        CannotExecute: There is one that can't be executed.
    """
    if not name:
        raise CommandNotFound("the command's name is empty; perhaps a variable there isn't set")
    folders = [""] if "/" in name else (search_path or os.defpath).split(os.pathsep)
    refused = None
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            refused = errno.EACCES
        elif os.path.isdir(path) and "/" in name:
            refused = errno.EISDIR
    raise _cannot(name, refused or errno.ENOENT)


def become(
    path: str, argv: Sequence[str], environ: Mapping[str, str], signals: SignalDescriptor
) -> NoReturn:
    """Replace this process by a command whose end is reported to no process.

    Args:
        path: The file to execute.
        argv: The command.
        environ: Its environment.
        signals: This process's signals.

    Raises:
        CommandNotFound, CannotExecute: The command can't be started.
    """
    tree.become_subreaper(is_one=False)  # execve(2) would keep it
    try:
        _become(path, argv, environ, signals.mask_before)
    except OSError as error:
        raise _cannot(argv[0], error.errno or errno.ENOEXEC) from error


def _become(
    path: str, argv: Sequence[str], environ: Mapping[str, str], mask: Iterable[int]
) -> NoReturn:
    # An INT that came while it was blocked has to end this process. Python's own handler would only
    # raise as soon as the mask is lifted, and keep the command from starting.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    callers.restore()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execve(path, list(argv), environ)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a #! line: execvp(3) runs it by the shell.
    os.execve("/bin/sh", ["/bin/sh", path, *argv[1:]], environ)


def _have_watched_over(
    become: Callable[[], NoReturn], life: int, told: int, failure: int, signals: SignalDescriptor
) -> NoReturn:
    from leasectl.run.warden import watch_over  # few commands need it

    watch_over(become, life=life, told=told, failure=failure, signals=signals)


def _cannot(name: str, number: int) -> LeaseError:
    if number == errno.ENOENT:
        return CommandNotFound(f"{printable(name, longest=200)}: command not found")
    return CannotExecute(f"{printable(name, longest=200)}: can't execute: {os.strerror(number)}")
