"""Sleep until there is work; heed signals.

- TERM: do the delayed releases at once, then end;
- URG: a process had no pipe to wake the keeper by: create the pipe again, and look.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Collection

from leasectl.errors import InvalidRequest, LeaseError, StateUnwritable
from leasectl.keeper.job import is_of_size_limit, lift_limit
from leasectl.keeper.log import Log, described
from leasectl.keeper.namespace_lock import NamespaceLock
from leasectl.keeper.rounds import Rounds, open_service
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.event import parse_kept
from leasectl.state.named_pipe import NamedPipe
from leasectl.system import afterwards, threads
from leasectl.system.backoff import Backoff
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import sleep
from leasectl.system.process import this_process
from leasectl.system.process_watch import ProcessEnds

_PAUSE_AFTER_FAILURE_SECONDS = 1.0
# poll(2) counts on a clock that stops in suspend, due times on one that doesn't.
_LONGEST_SLEEP_SECONDS = 5.0


def main(directory: str, *, kept_events: str = "") -> None:
    """Keep a state directory until nothing in it needs a keeper.

    Args:
        directory: Its path.
        kept_events: Which events are kept, as LEASECTL_KEEP_EVENTS says it.
    """
    os.umask(0o077)
    most_files = _shed_inherited_limits()
    afterwards.go_on()
    signals = _Signals()
    try:
        state = State.open(directory, create=False)
    except StateUnwritable:
        return  # the directory is gone, or can't be kept; commands say so
    if keeper_process.running(state) != this_process():
        return  # another candidate was faster than this one
    if kept_events:
        with contextlib.suppress(InvalidRequest):  # the command that started this has warned
            state.events.kept_seconds, state.events.kept_number = parse_kept(kept_events)
    ends = ProcessEnds(most_files - most_files // 8)  # leave files for servers and records
    _Loop(state, signals, ends, Clock()).run()


def _shed_inherited_limits() -> int:
    """Be as free as the system allows: this process outlives the job that has started it.

    Returns:
        How many files it may have open: each guard takes one, its pidfd.
    """
    for limit in (
        resource.RLIMIT_AS,
        resource.RLIMIT_CPU,
        resource.RLIMIT_DATA,
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_NPROC,
    ):
        lift_limit(limit)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    # A job may be marked to be killed first under memory pressure. A protected process stays so.
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+") as file:
        if int(file.read()) > 0:
            file.seek(0)
            file.write("0")
    return lift_limit(resource.RLIMIT_NOFILE)


class _Signals:
    """TERM and URG as a descriptor."""

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
        ends: Of processes; it follows none yet.
        clock: Where times come from.
    """

    def __init__(self, state: State, signals: _Signals, ends: ProcessEnds, clock: Clock) -> None:
        self._state = state
        self._signals = signals
        self._clock = clock
        self._log = Log(state.path("keeper.log"), clock)
        threads.report_by(self._log.write)
        self._pipe = NamedPipe(keeper_process.pipe_path(state))
        self._removal = state.removal_watch()
        self._ends = ends
        service = open_service(state, clock, self._log)
        self._rounds = Rounds(service, ends, self._log)
        self._namespace_lock = NamespaceLock(state, clock=clock, log=self._log)
        self._has_begun = False
        self._version_seen = 0  # data_version before the last round

    def run(self) -> None:
        """Go on until TERM arrives, nothing is left to keep, or this process can't keep it."""
        self._log.write("started")
        try:
            self._keep()
        finally:
            self._namespace_lock.close()

    def _keep(self) -> None:
        failures = 0
        while True:
            try:
                if not self._go():
                    return
                failures = 0
            except ImportError as error:
                # The code was replaced in place, and no command of the new version has come yet. Or
                # it is gone, and a command from another installation starts another keeper.
                self._log.write(f"{error}; the installation was replaced or deleted")
                if not keeper_process.has_code(keeper_process.CODE_FOLDER):
                    self._end("ended: the code of this keeper is gone")
                    return
                self._hand_over()
                self._pause(_PAUSE_AFTER_FAILURE_SECONDS)
            except Exception as error:
                self._log.write(f"this round failed: {described(error)}")
                if is_of_size_limit(error, self._state):
                    limit = "the limit on file sizes (ulimit -f) is too low for the state directory"
                    self._end(f"ended: {limit}")
                    return
                failures += 1
                longest = _LONGEST_SLEEP_SECONDS
                self._pause(Backoff(_PAUSE_AFTER_FAILURE_SECONDS, longest).pause(failures))

    def _go(self) -> bool:
        """Do what has arrived, go a round, and sleep until there is more; returns whether there
        can be any."""
        arrived = self._signals.arrived()
        if self._state.was_removed():
            self._end_without_records()
            return False
        if signal.SIGTERM in arrived:
            self._fire_timers()
            self._end("ended by TERM")
            return False
        if not self._begin():
            return False
        self._see_to_pipe(is_called=keeper_process.CALL in arrived)
        retry_at = self._namespace_lock.hold()
        self._version_seen = self._state.data_version()
        due = earliest(self._rounds.go(), retry_at)
        if not self._rounds.is_needed() and self._has_retired():
            self._log.write("ended: no lease needs a keeper")
            return False
        # Last: it takes long on a busy machine, and due work comes first.
        self._rounds.load_code()
        self._sleep(due, (self._ends.fd, *self._namespace_lock.fds(), *self._rounds.fds()))
        return True

    def _begin(self) -> bool:
        """Return whether this is the keeper, and record that it is as soon as it can.

        A process that registered something with the keeper before then could wake no process, so
        the first round comes after this.
        """
        self._has_begun = self._has_begun or keeper_process.begin(self._state, this_process())
        return self._has_begun

    def _sleep(self, due: float | None, fds: Collection[int]) -> None:
        """Sleep until something is due, or anything happens that may bring work.

        Args:
            due: When, CLOCK_BOOTTIME in seconds; None for never.
            fds: What wakes it beside its pipe and signals.
        """
        pipe, removal = self._pipe.fd, self._removal
        watched = () if removal.fd is None else (removal.fd,)
        while True:
            until = earliest(due, self._clock.elapsed() + _LONGEST_SLEEP_SECONDS)
            woken = sleep(
                wake_fds=(pipe, self._signals.fd, *watched, *fds),
                interrupts=(),
                until=until,
                now=self._clock.elapsed,
            )
            if woken or until == due or self._missed_something():
                break
        if pipe in woken:
            self._pipe.renew()
        if removal.fd in woken:
            removal.clear()

    def _pause(self, seconds: float) -> None:
        """Sleep for so long, unless a signal arrives."""
        until = self._clock.elapsed() + seconds
        sleep(wake_fds=(self._signals.fd,), interrupts=(), until=until, now=self._clock.elapsed)

    def _missed_something(self) -> bool:
        """Return whether there may be work for which no wake-up could reach this process."""
        is_changed = self._state.data_version() != self._version_seen
        is_out_of_place = not self._pipe.is_in_place() or self._state.was_removed()
        return is_changed or is_out_of_place or self._ends.look()

    def _see_to_pipe(self, *, is_called: bool) -> None:
        """See that this process can be woken, and miss nothing that it couldn't be woken for.

        Args:
            is_called: A process that holds the lock has found no pipe; there is work once it lets
                go.
        """
        if not self._pipe.is_in_place():
            with contextlib.suppress(OSError):  # a full disk: it looks again after some seconds
                self._pipe.restore()
                self._log.write("its pipe was gone; created it again")
            is_called = True
        if is_called:
            with self._state.transaction():
                pass

    def _end_without_records(self) -> None:
        """End, as no command can reach this process or see what it does.

        Timers go off at once where the records are gone, for no other process knows of them.
        Other records in their place may have the same timers.
        """
        if not os.path.lexists(self._state.path("state.db")):
            self._fire_timers()
        self._log.write("ended: the state directory was removed or replaced")

    def _fire_timers(self) -> None:
        try:
            self._rounds.fire_timers()
        except Exception as error:
            self._log.write(f"delayed release failed: {described(error)}")

    def _hand_over(self) -> None:
        """Become the version that is installed now; this returns if that can't be."""
        self._log.write("handing over to the installed version")
        command = keeper_process.command(self._state.directory)
        signal.pthread_sigmask(signal.SIG_BLOCK, keeper_process.KEEPER_SIGNALS)
        self._namespace_lock.close()
        with contextlib.suppress(OSError):
            os.execve(command[0], command, keeper_process.environment())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, keeper_process.KEEPER_SIGNALS)
        self._log.write("the installed version can't be started; this keeper continues")

    def _end(self, why: str) -> None:
        """End; the next command that needs a keeper starts another."""
        # If that fails, the records name a dead keeper, which a command replaces as well.
        with contextlib.suppress(Exception), self._state.transaction():
            self._resign()
        self._log.write(why)

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
