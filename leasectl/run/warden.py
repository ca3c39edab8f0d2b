"""A process between us and a command: it sees to it that the command doesn't outlive us.

Nobody else could: who is killed ends nothing, and what a command has started is known to the kernel
alone. So the warden adopts all that its command leaves behind (PR_SET_CHILD_SUBREAPER), waits for
the end of a pipe that only we hold open, and then kills until nothing is left. As long as it lives
somebody of the command's may; that makes it the guard of the lease.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Callable, NoReturn

from leasectl.system.poll import sleep
from leasectl.system.signals import SignalDescriptor

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def watch_over(
    become: Callable[[], NoReturn], *, life: int, failure: int, signals: SignalDescriptor
) -> NoReturn:
    """In a forked process: fork the command, follow it to its end, and end as it did.

    Args:
        become: Makes the command of the process that calls it; raises OSError if it can't.
        life: A pipe at whose end all of the command's is to end.
        failure: Where the number of that error is written.
        signals: Of which those that a process sent are passed on to the command.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        _begin(become, failure)
    os.close(failure)
    pidfd = os.pidfd_open(pid)
    while True:
        ready = sleep(
            wake_fds=(life, pidfd, signals.fd), interrupts=(), until=None, now=time.monotonic
        )
        if life in ready:
            _kill_all()
            os._exit(0)  # nobody asks how
        if signals.fd in ready:
            for signum, sent_by_a_process in signals.read():
                if sent_by_a_process:
                    signal.pidfd_send_signal(pidfd, signum)
        if pidfd in ready:
            _end_as(os.waitpid(pid, 0)[1])


def _begin(become: Callable[[], NoReturn], failure: int) -> NoReturn:
    """In the process that is to be the command."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should even the warden be killed
    try:
        become()
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(126)


def _kill_all() -> None:
    """Kill all children and whatever these leave behind, until there are none."""
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


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


def _end_as(status: int) -> NoReturn:
    """End as the command did."""
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    signum = os.WTERMSIG(status)
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    _prctl(_PR_SET_DUMPABLE, 0)  # the command has left a core dump, if there is to be one
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)  # it ended by a signal that ends nobody else


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
