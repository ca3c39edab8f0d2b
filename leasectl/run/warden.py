"""A process between us and a command: it sees to it that the command doesn't outlive us.

Nobody else could: who is killed ends nothing, and what a command has started is known to the kernel
alone. So the warden adopts all that its command leaves behind (PR_SET_CHILD_SUBREAPER), waits for
the end of a pipe that only we hold open, and then kills until nothing is left. As long as it lives
somebody of the command's may; that makes it the guard of the lease. Until it is let go it stays,
for what the command has come to is recorded only after its end. Should we be stopped it kills all
the same, when the lease that the command runs under may be another's: it is told until when not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

from leasectl.run.wanted import CONTINUE, FOR_GOOD, KILL, LET_GO
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import is_readable, sleep
from leasectl.system.signals import SignalDescriptor
from leasectl.typed.hints import Callable, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def watch_over(
    become: Callable[[], NoReturn],
    *,
    life: int,
    told: int,
    failure: int,
    signals: SignalDescriptor,
) -> NoReturn:
    """In a forked process: fork the command, follow it to its end, tell it, and stay until let go.

    Args:
        become: Makes the command of the process that calls it; raises OSError if it can't.
        life: A pipe that brings what is wanted, and at whose end all of the command's is to end.
        told: Where it is written how the command ended.
        failure: Where the number of that error is written.
        signals: Of which those that a process sent are passed on to the command.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wanted = _wanted_by_now(life)
    if _is_in_vain(wanted):  # whoever started it may have been stopped before that
        os.kill(os.getpid(), signal.SIGKILL)
    pid = os.fork()
    if pid == 0:
        _begin(become, failure)
    os.close(failure)
    # Whoever stops, or kills, the process group of the command leaves this process as it is. In the
    # same session the kernel would continue whoever is stopped, and hang up, as the command ends.
    os.setsid()
    _Warden(pid, life, told, signals, wanted).watch()


class _Warden:
    """What this process is, once the command has been forked.

    Args:
        pid: Of the command.
        life, told, signals: As `watch_over` has them.
        wanted: What was read of `life` before.
    """

    def __init__(
        self, pid: int, life: int, told: int, signals: SignalDescriptor, wanted: bytes
    ) -> None:
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._life = life
        self._told = told
        self._signals = signals
        self._has_ended = False
        self._deadline: float | None = None
        self._wanted = wanted

    def watch(self) -> NoReturn:
        """Do what is wanted until it is to be gone."""
        self._obey()
        while True:
            ended = () if self._has_ended else (self._pidfd,)
            woken = sleep(
                wake_fds=(self._life, self._signals.fd, *ended),
                interrupts=(),
                until=self._deadline,
                now=boottime_seconds,
            )
            if self._signals.fd in woken:
                self._pass_on()
            if self._pidfd in woken:
                self._tell_end()
            if self._deadline is not None and boottime_seconds() >= self._deadline:
                self._deadline = None
                self._kill_all()
            if self._life in woken:
                self._read()

    def _pass_on(self) -> None:
        for signum, sent_by_a_process in self._signals.read():
            if sent_by_a_process and not self._has_ended:
                signal.pidfd_send_signal(self._pidfd, signum)

    def _read(self) -> None:
        got = os.read(self._life, 4096)
        if not got:
            self._kill_all()
            os._exit(0)  # nobody asks how
        self._wanted += got
        self._obey()

    def _obey(self) -> None:
        *wanted, self._wanted = self._wanted.split(b"\n")
        for each in wanted:
            if each == LET_GO:
                os._exit(0)
            if each == KILL:
                self._kill_all()
                self._tell(KILL)
            elif each == CONTINUE:
                if not self._has_ended:
                    signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
            else:
                self._deadline = float(each) if each != FOR_GOOD else None

    def _kill_all(self) -> None:
        """Kill all children and whatever these leave behind, until there are none."""
        while True:
            for pid in _children():
                # Who has become somebody else is waited for.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not self._has_ended:
                self._tell_end()
                continue  # what it has left behind is known by now
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _tell_end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._tell(str(os.waitpid(self._pid, 0)[1]).encode())

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # who is dead needn't know
            os.write(self._told, line + b"\n")


def _wanted_by_now(life: int) -> bytes:
    return os.read(life, 4096) if is_readable(life, 0) else b""


def _is_in_vain(wanted: bytes) -> bool:
    """Tell whether a command would be killed as soon as it has begun."""
    *lines, _ = wanted.split(b"\n")
    times = [each for each in lines if each not in (KILL, CONTINUE, LET_GO)]
    last = times[-1] if times else FOR_GOOD
    return KILL in lines or (last != FOR_GOOD and boottime_seconds() >= float(last))


def _begin(become: Callable[[], NoReturn], failure: int) -> NoReturn:
    """In the process that is to be the command."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should even the warden be killed
    try:
        become()
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(126)


def _children() -> list[int]:
    """The pids of all children of this process, which nobody else waits for."""
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit() and _parent_of(name) == own:
            found.append(int(name))
    return found


def _parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may have any character in it.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
