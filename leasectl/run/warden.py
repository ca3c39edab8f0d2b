"""A process that ends a command if its starter is killed; for `once` and answers to a reclaim."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from leasectl.run.tree import (
    become_subreaper,
    has_children,
    own_children,
    prctl,
    reap,
    send,
    tree_of,
)
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import Alarm, is_readable, sleep
from leasectl.system.signals import SignalDescriptor

FOR_GOOD = b"-"  # in place of a time: never
KILL = b"kill"  # the whole tree, now; answered with the same word
CONTINUE = b"continue"  # send CONT to the command
LET_GO = b"go"  # end, and leave the command's descendants


_PR_SET_PDEATHSIG = 1
_LOOK_AGAIN_SECONDS = 0.05


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
    become_subreaper()
    wanted = _wanted_by_now(life)
    if _is_in_vain(wanted):  # `run` may have been stopped before the fork
        os.kill(os.getpid(), signal.SIGKILL)
    pid = os.fork()
    if pid == 0:
        _begin(become, failure)
    try:
        os.close(failure)
        # A signal to the command's process group doesn't reach this process. If it were in the same
        # session, the command's end could orphan a stopped process group: then the kernel sends HUP
        # and CONT to it.
        os.setsid()
        warden = _Warden(pid, life, told, signals, wanted)
    except BaseException:  # such as no descriptor left
        os.kill(pid, signal.SIGKILL)
        raise
    warden.watch()


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
        """Do what is wanted until it is to be gone; an error ends no step but its own."""
        alarm = Alarm()
        while True:
            _try(self._obey)
            _try(lambda: alarm.set(self._deadline))
            if not _try(lambda: self._sleep(alarm)):
                time.sleep(_LOOK_AGAIN_SECONDS)
            _try(self._pass_on)
            _try(self._look_for_end)
            if self._deadline is not None and boottime_seconds() >= self._deadline:
                self._deadline = None
                self._kill_all()
            _try(self._read)

    def _sleep(self, alarm: Alarm) -> None:
        ended = () if self._has_ended else (self._pidfd,)
        sleep(
            wake_fds=(self._life, self._signals.fd, *ended, *alarm.fds),
            interrupts=(),
            until=self._deadline,
        )

    def _pass_on(self) -> None:
        for signum, sent_by_a_process in self._signals.read():
            if sent_by_a_process and not self._has_ended:
                self._send(signum)

    def _send(self, signum: int) -> None:
        # A command of another user can't be signalled: the warden must not die of it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def _read(self) -> None:
        if not is_readable(self._life, 0):
            return
        got = os.read(self._life, 4096)
        if not got:
            self._kill_all()
            os._exit(0)  # no process reads the status
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
                    self._send(signal.SIGCONT)
            else:
                self._deadline = float(each) if each != FOR_GOOD else None

    def _kill_all(self) -> None:
        """Kill the whole tree until nothing of it is left; wait for what can't be killed.

        While the tree can't be listed, no descriptor being left for one, the command is killed.
        """
        is_gone = False
        while not is_gone:
            try:
                is_gone = self._kill_tree()
            except Exception:
                if not self._has_ended:
                    self._send(signal.SIGKILL)
            if not is_gone:
                time.sleep(_LOOK_AGAIN_SECONDS)

    def _kill_tree(self) -> bool:
        """Kill what there is of it; return whether nothing is left, but for keepers."""
        if not has_children():
            return True
        tree = tree_of(own_children())
        if not tree:
            return True
        if not self._has_ended:
            self._send(signal.SIGKILL)  # first, or it could see its children die and exit
        send(tree, signal.SIGKILL)
        self._look_for_end()
        reap(own_children() - ({self._pid} if not self._has_ended else set()))
        return not has_children()

    def _look_for_end(self) -> None:
        if not self._has_ended and is_readable(self._pidfd, 0):
            self._has_ended = True
            self._tell(str(os.waitpid(self._pid, 0)[1]).encode())

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # `run` is dead
            os.write(self._told, line + b"\n")


def _try(step: Callable[[], object]) -> bool:
    try:
        step()
    except Exception:
        return False
    return True


def _wanted_by_now(life: int) -> bytes:
    return os.read(life, 4096) if is_readable(life, 0) else b""


def _is_in_vain(wanted: bytes) -> bool:
    """Tell whether a command would be killed as soon as it has begun."""
    *lines, _ = wanted.split(b"\n")
    times = [each for each in lines if each not in (KILL, CONTINUE, LET_GO)]
    last = times[-1] if times else FOR_GOOD
    return KILL in lines or (last != FOR_GOOD and boottime_seconds() >= float(last))


def _begin(become: Callable[[], NoReturn], failure: int) -> NoReturn:
    """In the forked process: become the command, or report why that failed."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # in case even the warden is killed
    try:
        become()
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(126)
