"""The keeper as a process: it goes a round, sleeps until there is work, and heeds signals.

- TERM: release at once what was to be released later, then end;
- USR1: become the version that is installed now, releasing nothing;
- URG: somebody couldn't wake it: make the named pipe anew, and look.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection

from leasectl.errors import InvalidRequest, LeaseError
from leasectl.keeper.log import Log
from leasectl.keeper.rounds import Rounds, open_service
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.event import parse_kept
from leasectl.system import afterwards
from leasectl.system import c_signal as signal
from leasectl.system.clock import Clock, earliest
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.poll import sleep
from leasectl.system.process import this_process
from leasectl.system.process_ends import ProcessEnds

_PAUSE_AFTER_FAILURE_SECONDS = 1.0
# poll(2) counts on a clock that stops in suspend, due times on one that doesn't; and a process of
# the version before doesn't call a keeper whose pipe is gone.
_LONGEST_SLEEP_SECONDS = 5.0


def main(directory: str, *, kept_events: str = "") -> None:
    """Keep a state directory until nothing in it needs a keeper.

    Args:
        directory: Its path.
        kept_events: Which events are kept, as LEASECTL_KEEP_EVENTS says it.
    """
    os.umask(0o077)
    most_files = _allow_many_files()
    afterwards.go_on()
    signals = _Signals()
    state = State.open(directory)
    if keeper_process.running(state) != this_process():
        return  # another candidate was faster
    if kept_events:
        with contextlib.suppress(InvalidRequest):  # whoever started this has been told
            state.events.kept_seconds, state.events.kept_number = parse_kept(kept_events)
    ends = ProcessEnds(most_files - most_files // 8)  # the rest is for servers and the records
    _Loop(state, signals, ends, Clock()).run()


def _allow_many_files() -> int:
    """Each guard takes one, its pidfd; returns how many there may be."""
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    return most_files


class _Signals:
    """TERM, USR1 and URG as a descriptor."""

    def __init__(self) -> None:
        self.fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for signum in (*keeper_process.KEEPER_SIGNALS, keeper_process.CALL):
            signal.signal(signum, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, keeper_process.KEEPER_SIGNALS)
        for signum in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)

    def arrived(self) -> set[int]:
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self.fd, 4096))
        return set()


class _Loop:
    """The one keeper of a state directory, at work.

    Args:
        state: The opened state directory, which has this process for its keeper.
        signals: Those that it heeds.
        ends: Of processes, which follows nobody yet.
        clock: Where times come from.
    """

    def __init__(self, state: State, signals: _Signals, ends: ProcessEnds, clock: Clock) -> None:
        self._state = state
        self._signals = signals
        self._clock = clock
        self._log = Log(state.path("keeper.log"), clock)
        self._pipe = NamedPipe(keeper_process.pipe_path(state))
        self._ends = ends
        self._service = open_service(state, clock, self._log)
        self._rounds = Rounds(self._service, ends, clock=clock, log=self._log)
        self._has_begun = False
        self._version_seen = 0  # of the data, before the last round
        self._is_left = False  # the state directory was removed: nobody can reach this process

    def run(self) -> None:
        """Go on until TERM arrives or nothing is left to keep."""
        self._log.write("started")
        while True:
            arrived = self._signals.arrived()
            if signal.SIGTERM in arrived:
                self._end_by_term()
                return
            if signal.SIGUSR1 in arrived:
                self._hand_over()
            try:
                if not self._begin():
                    return
                self._see_to_pipe(is_called=keeper_process.CALL in arrived)
                self._version_seen = self._state.data_version()
                due = self._rounds.go()
                if not self._rounds.is_needed() and self._has_retired():
                    self._log.write("ended: nothing left to keep")
                    return
                fds = (self._ends.fd, *self._rounds.fds())
            except ImportError as error:
                # The code was replaced in place, before any command of the new version came by.
                self._log.write(f"{error}; it may have been replaced")
                self._hand_over()
                due, fds = self._clock.elapsed() + _PAUSE_AFTER_FAILURE_SECONDS, ()
            except LeaseError as error:
                self._log.write(f"can't go on: {error}")
                due, fds = self._clock.elapsed() + _PAUSE_AFTER_FAILURE_SECONDS, ()
            self._sleep(due, fds)

    def _begin(self) -> bool:
        """Tell whether this is the keeper, which it says in the records as soon as it can.

        Whoever registered something with the keeper before then has woken nobody, so the first
        round comes after this.
        """
        self._has_begun = self._has_begun or keeper_process.begin(self._state, this_process())
        return self._has_begun

    def _sleep(self, due: float | None, fds: Collection[int]) -> None:
        """Sleep until something is due, or anything happens that may bring work.

        Args:
            due: When, CLOCK_BOOTTIME in seconds; None for never.
            fds: What wakes it beside its pipe and signals.
        """
        pipe = self._pipe.fd
        while True:
            until = earliest(due, self._clock.elapsed() + _LONGEST_SLEEP_SECONDS)
            woken = sleep(
                wake_fds=(pipe, self._signals.fd, *fds),
                interrupts=(),
                until=until,
                now=self._clock.elapsed,
            )
            if woken or until == due or self._missed_something():
                break
        if pipe in woken:
            self._pipe.renew()

    def _missed_something(self) -> bool:
        """Tell whether there may be work that nobody could wake this process for."""
        try:
            is_changed = self._state.data_version() != self._version_seen
        except LeaseError:
            return True
        return is_changed or self._pipe.is_in_place() == self._is_left or self._ends.look()

    def _see_to_pipe(self, *, is_called: bool) -> None:
        """See that this process can be woken, and miss nothing that it couldn't be woken for.

        Args:
            is_called: Somebody has found no pipe, who holds the lock until there is work.
        """
        is_in_place = self._pipe.is_in_place()
        self._is_left = not is_in_place and self._state.was_removed()
        self._state.names_files.are_left = self._is_left
        if not is_in_place and not self._is_left:
            with contextlib.suppress(OSError):  # a full disk: it looks again after some seconds
                self._pipe.restore()
                self._log.write("made its pipe anew, which was gone")
            is_called = True
        if is_called:
            with self._state.transaction():
                pass

    def _end_by_term(self) -> None:
        self._rounds.fire_timers()
        with self._state.transaction():
            self._resign()
        self._log.write("ended by TERM")

    def _hand_over(self) -> None:
        """Become the version that is installed now; this returns if that can't be."""
        self._log.write("handing over to the installed version")
        command = keeper_process.command(self._state.directory)
        signal.pthread_sigmask(signal.SIG_BLOCK, keeper_process.KEEPER_SIGNALS)
        with contextlib.suppress(OSError):
            os.execve(command[0], command, keeper_process.environment())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, keeper_process.KEEPER_SIGNALS)
        self._log.write("the installed version can't be started; going on")

    def _has_retired(self) -> bool:
        """Decide to end, under the lock that registration takes: end only if nothing came in."""
        try:
            with self._state.transaction():
                if self._rounds.is_needed():
                    return False
                self._resign()
                return True
        except LeaseError:
            self._pipe.restore()
            raise

    def _resign(self) -> None:
        """Inside the last transaction: afterwards, a pipe of that name is another keeper's."""
        keeper_process.resign(self._state)
        self._pipe.remove()
