"""The keeper: the one background process of a state directory.

It performs delayed releases, releases what dead guards held, and renews leases with a ttl for
handles that have no `run` of their own. It ends when there is nothing left to watch. Signals:

- TERM: release at once what was to be released later, then end;
- USR1: become the version that is installed now, releasing nothing.

Started by `leasectl.state.keeper_process`, as ``python -m leasectl.keeper.loop <state directory>``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

from leasectl.backends.kinds import LOCAL, kind_of_handle
from leasectl.errors import LeaseError
from leasectl.leases.caller import Caller
from leasectl.leases.recovery import due
from leasectl.leases.release import release
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.renewal_threads import RenewalThreads
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.handles import renews_itself
from leasectl.system.clock import Clock, rfc3339
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.poll import sleep
from leasectl.system.process import is_dead, this_process
from leasectl.system.process_watch import ProcessWatch
from leasectl.system.request_threads import Outcome, RequestThreads
from leasectl.text.durations import format_seconds

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
# poll(2) counts on a clock that stops in suspend, due times on one that doesn't.
_LONGEST_SLEEP_SECONDS = 60.0
_LONGEST_LOG_BYTES = 1 << 20


class Log:
    """The keeper's log: one line an event, in the state directory. A full disk silences it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if os.path.exists(self._path) and os.path.getsize(self._path) > _LONGEST_LOG_BYTES:
                os.replace(self._path, self._path + ".1")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o600)
            try:
                line = f"{rfc3339(self._clock.wall())} [{os.getpid()}] {text}\n"
                os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)


@dataclass
class _Retry:
    """When something that failed is tried again."""

    at: float
    pause: float = FIRST_RETRY_SECONDS


class _Server(NamedTuple):
    """Where releases go; each has a thread of its own."""

    url: str
    settings: str


class Keeper:
    """The keeper's work, one `round` at a time.

    Args:
        service: On the state directory that is kept.
        clock: Where times come from.
        log: Where events are written.
    """

    def __init__(self, service: Service, *, clock: Clock, log: Log) -> None:
        self._service = service
        self._clock = clock
        self._log = log
        self._renewed_at: dict[tuple[str, int], float] = {}
        self._heartbeats: RenewalThreads | None = None
        self._releases: RequestThreads[_Server, ReleaseTarget] | None = None
        self._retries: dict[tuple[str, int], _Retry] = {}

    def round(self) -> float | None:
        """Do all that is due.

        Returns:
            When something is due next, CLOCK_BOOTTIME in seconds; None when only events can
            bring work.
        """
        self._take_outcomes()
        next_times = [self._release(target) for target in due(self._service)]
        handles = self._service.handles.watched()
        next_times += [self._renew(handle) for handle in handles if _keeper_renews(handle)]
        next_times += [
            due
            for handle_id, _, acquisition, due in self._service.handles.timers()
            if (handle_id, acquisition) not in self._retries.keys() | self._releasing()
        ]
        self._forget_the_gone(handles)
        return min((time for time in next_times if time is not None), default=None)

    def processes(self) -> list[Process]:
        """Whose end brings work."""
        handles = self._service.handles.watched()
        some = [p for handle in handles for p in (handle.guard, handle.waiter, handle.runner)]
        return [process for process in some if process is not None]

    def fds(self) -> tuple[int, ...]:
        """What becomes readable when there is work for another reason."""
        return tuple(each.fd for each in (self._heartbeats, self._releases) if each is not None)

    def fire_timers(self) -> None:
        """Release now what was to be released later."""
        for handle_id, name, acquisition, _ in self._service.handles.timers():
            target = ReleaseTarget(handle_id, acquisition, (name,) if name else None)
            self._note_release(target, functools.partial(release, self._service, target))

    def _release(self, target: ReleaseTarget) -> float | None:
        retry = self._retries.get((target.handle_id, target.acquisition))
        now = self._clock.elapsed()
        if retry is not None and now < retry.at:
            return retry.at
        handle = self._service.handles.load(target.handle_id)
        if handle is None or kind_of_handle(handle).shares_transaction:
            return self._note_release(target, lambda: release(self._service, target))
        if self._releases is None:
            self._releases = RequestThreads(self._begin_releases, clock=self._clock)
        self._releases.send(_Server(handle.backend, handle.settings), target)
        return None  # its outcome brings the next round

    def _releasing(self) -> set[tuple[str, int]]:
        """Of which handles something is being released by a thread."""
        jobs = self._releases.under_way if self._releases else ()
        return {(target.handle_id, target.acquisition) for target in jobs}

    def _begin_releases(self, server: _Server) -> Callable[[ReleaseTarget], tuple[str, ...]]:
        """In a thread of its own, which needs records of its own."""
        state = State.open(self._service.state.directory)
        return functools.partial(release, open_service(state, self._clock))

    def _note_release(
        self, target: ReleaseTarget, release: Callable[[], tuple[str, ...]]
    ) -> float | None:
        key = (target.handle_id, target.acquisition)
        try:
            names = release()
        except LeaseError as error:
            return self._failed(key, f"can't release {target.handle_id}: {error}")
        self._retries.pop(key, None)
        self._log.write(f"released {target.handle_id}: {' '.join(names) or 'held nothing'}")
        return None

    def _renew(self, handle: Handle) -> float | None:
        key = (handle.id, handle.acquisition)
        ttl = handle.request.ttl_seconds
        assert ttl is not None
        retry = self._retries.get(key)
        now = self._clock.elapsed()
        due = retry.at if retry else self._renewed_at.get(key, 0.0) + ttl / 3
        if now < due:
            return due
        if kind_of_handle(handle).shares_transaction:
            return self._note_renewal(handle, now, lambda: renew(self._service, whole(handle)))
        if self._heartbeats is None:
            self._heartbeats = RenewalThreads(self._service.state, clock=self._clock)
        self._heartbeats.send(handle)
        return None  # its outcome brings the next round

    def _take_outcomes(self) -> None:
        """Record what came of what threads were asked to do."""
        for outcome in self._releases.outcomes() if self._releases else ():
            self._note_release(outcome.job, outcome.result)
        for target, heartbeat in self._heartbeats.outcomes() if self._heartbeats else ():
            handle = self._service.handles.load(target.handle_id)
            if handle is not None and whole(handle) == target:
                record = functools.partial(self._record, target, heartbeat)
                self._note_renewal(handle, heartbeat.sent_at, record)

    def _record(self, target: ReleaseTarget, heartbeat: Outcome[Any]) -> None:
        note_renewal(self._service, target, heartbeat.result())

    def _note_renewal(
        self, handle: Handle, sent: float, renew: Callable[[], object]
    ) -> float | None:
        key = (handle.id, handle.acquisition)
        ttl = handle.request.ttl_seconds
        assert ttl is not None
        try:
            renew()
        except LeaseError as error:
            if handle.id not in {h.id for h in self._service.handles.watched()}:
                self._log.write(f"{error}")
                return None
            return self._failed(key, f"can't renew {handle.id}: {error}", longest=ttl / 6)
        self._retries.pop(key, None)
        self._renewed_at[key] = sent
        return sent + ttl / 3

    def _failed(
        self, key: tuple[str, int], text: str, *, longest: float = LONGEST_RETRY_SECONDS
    ) -> float:
        retry = self._retries.get(key)
        pause = FIRST_RETRY_SECONDS if retry is None else retry.pause * 2
        pause = min(pause, longest)
        self._retries[key] = _Retry(self._clock.elapsed() + pause, pause)
        self._log.write(f"{text}; next try in {format_seconds(pause)}")
        return self._retries[key].at

    def _forget_the_gone(self, handles: Sequence[Handle]) -> None:
        known = {(handle.id, handle.acquisition) for handle in handles}
        for memory in (self._renewed_at, self._retries):
            for key in [key for key in memory if key not in known]:
                del memory[key]


def open_service(state: State, clock: Clock) -> Service:
    """What the keeper does things with; each handle remembers its own backend."""
    caller = Caller(owner="keeper", host="")
    return Service(state, backend_url=LOCAL, caller=caller, clock=clock)


def _keeper_renews(handle: Handle) -> bool:
    """Tell whether a handle's ttl is the keeper's business: nobody else is there to renew."""
    if not renews_itself(handle) or handle.state != "held":
        return False
    return handle.runner is None or is_dead(handle.runner)


class _Signals:
    """TERM and USR1 as a descriptor."""

    def __init__(self) -> None:
        self.fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for signum in keeper_process.KEEPER_SIGNALS:
            signal.signal(signum, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, keeper_process.KEEPER_SIGNALS)
        for signum in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)

    def arrived(self) -> set[int]:
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self.fd, 4096))
        return set()


def main(directory: str) -> None:
    """Keep a state directory until nothing in it needs a keeper."""
    os.umask(0o077)
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # a pidfd a guard
    signals = _Signals()
    clock = Clock()
    state = State.open(directory)
    if keeper_process.running(state) != this_process():
        return  # another candidate was faster
    log = Log(state.path("keeper.log"), clock)
    pipe = NamedPipe(keeper_process.pipe_path(state))
    watch = ProcessWatch()
    service = open_service(state, clock)
    keeper = Keeper(service, clock=clock, log=log)
    log.write("started")
    while True:
        arrived = signals.arrived()
        if signal.SIGTERM in arrived:
            keeper.fire_timers()
            with state.transaction():
                _resign(state, pipe)
            log.write("ended by TERM")
            return
        if signal.SIGUSR1 in arrived:
            log.write("handing over to the installed version")
            command = keeper_process.command(directory)
            signal.pthread_sigmask(signal.SIG_BLOCK, keeper_process.KEEPER_SIGNALS)
            with contextlib.suppress(OSError):
                os.execve(command[0], command, keeper_process.environment())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, keeper_process.KEEPER_SIGNALS)
            log.write("the installed version can't be started; going on")
        try:
            due = keeper.round()
            if not service.handles.any_watched() and _retired(state, service, pipe):
                log.write("ended: nothing left to keep")
                return
            processes = keeper.processes()
        except LeaseError as error:
            log.write(f"can't go on: {error}")
            due, processes = clock.elapsed() + FIRST_RETRY_SECONDS, []
        latest = clock.elapsed() + _LONGEST_SLEEP_SECONDS
        if watch.update(processes):
            continue
        woken = sleep(
            wake_fds=(pipe.fd, signals.fd, *watch.fds(), *keeper.fds()),
            interrupts=(),
            until=latest if due is None else min(due, latest),
            now=clock.elapsed,
        )
        watch.heard(woken)
        if pipe.fd in woken:
            pipe.renew()


def _retired(state: State, service: Service, pipe: NamedPipe) -> bool:
    """Decide to end, under the lock that registration takes: end only if nothing came in."""
    try:
        with state.transaction():
            if service.handles.any_watched():
                return False
            _resign(state, pipe)
            return True
    except LeaseError:
        pipe.restore()
        raise


def _resign(state: State, pipe: NamedPipe) -> None:
    """Inside the last transaction: afterwards, a pipe of that name is another keeper's."""
    keeper_process.resign(state)
    pipe.remove()
