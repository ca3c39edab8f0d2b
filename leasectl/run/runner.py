"""Run a command under a lease, and end as it ended.

The command is forked first and waits on a pipe until it is recorded as the handle's guard. So
whenever this process is killed, either the command never starts, or the lease follows it.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled, LeaseError, LeaseLost, NotAllowed, NotFound
from leasectl.leases.acquire import acquire
from leasectl.leases.announce import announce
from leasectl.leases.release import finish
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, whole
from leasectl.run.child import Child, Ending, find_command
from leasectl.run.lease_watch import LeaseWatch
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Interrupt, milliseconds
from leasectl.system.process import identify, this_process
from leasectl.system.signals import SignalDescriptor
from leasectl.text.wording import listed

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_OURS = ("LEASECTL_HANDLE", "LEASECTL_NAMES", "LEASECTL_FENCE", "LEASECTL_ATTEMPT")
# What becomes of the command.
_LOST = {"term": "gets TERM", "kill": "is killed", "ignore": "goes on without it"}
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@dataclass(frozen=True)
class Plan:
    """What `run` is to do.

    Args:
        command: The command and its arguments.
        request: The lease to hold meanwhile.
        attempts: How often the command is started at most.
        retry_on: Exit codes after which it is started again, under a new lease.
        before_retry: A shell command to run in between, without a lease; None for none.
        on_lost: What the command gets when its lease is lost: ``term``, ``kill`` or ``ignore``.
        optional: Run the command also when no lease can be had.
        environ: The command's environment.
    """

    command: Sequence[str]
    request: Request
    attempts: int = 1
    retry_on: Collection[int] = ()
    before_retry: str | None = None
    on_lost: str = "term"
    optional: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)


class Runner:
    """Carries out a `Plan`.

    Args:
        open_service: Opens where leases come from. Called when the first is needed, so that an
            optional one may also fail there.
        plan: What to do.
        before_acquire: Called before each acquisition with the descriptors that interrupt it;
            sleeps the jitter.
        warn: Called with a line for people.
        clock: Where times come from.
    """

    def __init__(
        self,
        open_service: Callable[[], Service],
        plan: Plan,
        *,
        before_acquire: Callable[[Sequence[Interrupt]], None],
        warn: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._open_service = open_service
        self._opened: Service | None = None
        self._plan = plan
        self._before_acquire = before_acquire
        self._warn = warn
        self._clock = clock or Clock()
        self._signals = SignalDescriptor(FORWARDED)
        self._asked_to_end = False

    def run(self, patience: Patience) -> Ending:
        """Run the command, again if the plan says so.

        Args:
            patience: How long to wait for each lease.

        Returns:
            How the last run of the command ended.

        Raises:
            CommandNotFound, CannotExecute: Before any lease is asked for.
            LeaseLost: The lease was lost, and the command has ended since.
            Interrupted: A signal arrived while there was no command to forward it to.
            LeaseError: No lease was had.
        """
        path = find_command(self._plan.command[0], self._plan.environ.get("PATH", os.defpath))
        for attempt in range(1, self._plan.attempts + 1):
            ending = self._attempt(path, attempt, patience)
            last = attempt == self._plan.attempts or self._asked_to_end
            if last or ending.code not in self._plan.retry_on:
                break
            self._warn(
                f"{self._plan.command[0]} exited with {ending.code}; "
                f"attempt {attempt + 1} of {self._plan.attempts} follows"
            )
            if not self._prepare_retry(attempt):
                break
        return ending

    def _attempt(self, path: str, attempt: int, patience: Patience) -> Ending:
        handle = self._acquire(patience)
        if handle is None:
            child = Child(path, self._plan.command, self._environ(attempt), self._signals)
            return self._supervise(child, None)
        try:
            return self._under(handle, path, attempt)
        finally:
            self._finish(handle)

    def _finish(self, handle: Handle) -> None:
        try:
            finish(self._service, handle)
        except LeaseError as error:
            # How the command ended is what counts; its death is known to the keeper too.
            self._warn(f"{error}; the keeper goes on trying to release it")

    def _under(self, handle: Handle, path: str, attempt: int) -> Ending:
        environ = {
            **self._environ(attempt),
            "LEASECTL_HANDLE": self._service.state.names_path(handle.id),
            "LEASECTL_NAMES": ",".join(handle.names),
            "LEASECTL_FENCE": ",".join(handle.fences),
        }
        child = Child(path, self._plan.command, environ, self._signals)
        try:
            guard = identify(child.pid)
        except NotFound:
            return self._supervise(child, None)  # killed already; says so
        try:
            sent = self._clock.elapsed()
            if handle.request.ttl_seconds is not None:
                renew(self._service, whole(handle))
            announce(self._service, handle, guard=guard, runner=this_process())
            watch = LeaseWatch(self._service, handle, renewed_at=sent, clock=self._clock)
            if watch.is_lost(self._clock.elapsed()):
                watch.close()
                raise LeaseLost(
                    f"the lease of {self._plan.request.type} was lost before "
                    f"{self._plan.command[0]} could be started; nothing was run"
                )
        except NotAllowed:
            child.abandon()
            raise Cancelled(f"handle {handle.id} was released before it could be used") from None
        except BaseException:
            child.abandon()
            raise
        try:
            return self._supervise(child, watch)
        finally:
            watch.close()

    def _environ(self, attempt: int) -> dict[str, str]:
        # What an outer run set is about its lease, not about ours.
        outer = {k: v for k, v in self._plan.environ.items() if k not in _OURS}
        return {**outer, "LEASECTL_ATTEMPT": str(attempt)}

    @property
    def _service(self) -> Service:
        if self._opened is None:
            self._opened = self._open_service()
        return self._opened

    def _acquire(self, patience: Patience) -> Handle | None:
        interrupt = Interrupt(self._signals.fd, select.POLLIN, self._raise_if_ending)
        try:
            self._raise_if_ending()
            self._before_acquire([interrupt])
            return acquire(
                self._service,
                self._plan.request,
                patience=patience._replace(interrupts=(*patience.interrupts, interrupt)),
                followed=True,
            )
        except LeaseError as error:
            # Who releases a waiting request wants it to end, not to go on without a lease.
            if not self._plan.optional or isinstance(error, Cancelled):
                raise
            self._warn(f"{error}; going on without a lease, as it is optional")
            return None

    def _raise_if_ending(self) -> None:
        for signum, _ in self._signals.read():
            if signum in _ENDING:
                self._signals.interrupt(signum)

    def _prepare_retry(self, attempt: int) -> bool:
        if self._plan.before_retry is None:
            return True
        environ = self._environ(attempt)
        shell = ("/bin/sh", "-c", self._plan.before_retry)
        ending = self._supervise(Child(shell[0], shell, environ, self._signals), None)
        if ending.code != 0:
            self._warn(f"--before-retry failed ({ending.describe()}); no further attempt")
        return ending.code == 0 and not self._asked_to_end

    def _supervise(self, child: Child, watch: LeaseWatch | None) -> Ending:
        child.start()
        lost = _Loss(self._plan.on_lost)
        self._wait_for_end(child, watch, lost)
        ending = child.reap()
        if lost.at is not None and self._plan.on_lost != "ignore":
            raise LeaseLost(
                f"the lease of {self._plan.request.type} was lost while "
                f"{self._plan.command[0]} ran, which was ended ({ending.describe()})"
            )
        return ending

    def _wait_for_end(self, child: Child, watch: LeaseWatch | None, lost: _Loss) -> None:
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        poll.register(self._signals.fd, select.POLLIN)
        while True:
            now = self._clock.elapsed()
            until = None if watch is None else earliest(watch.until(now), lost.kill_at)
            if watch is not None:
                watch.register(poll)
            events = dict(poll.poll(milliseconds(until, now)))
            if self._signals.fd in events:
                self._forward(child)
            if child.pidfd in events:
                return
            if watch is not None:
                watch.look(events, poll)
                self._act_on_loss(child, watch, lost)

    def _forward(self, child: Child) -> None:
        for signum, sent_by_a_process in self._signals.read():
            if signum in _ENDING:
                self._asked_to_end = True
            if sent_by_a_process:
                child.signal(signum)

    def _act_on_loss(self, child: Child, watch: LeaseWatch, lost: _Loss) -> None:
        now = self._clock.elapsed()
        if lost.at is None and watch.is_lost(now):
            lost.at = now
            lost.kill_at = watch.kill_at(now) if lost.action == "term" else None
            self._warn(
                f"lost the lease on {listed(watch.names)}: "
                f"{self._plan.command[0]} {_LOST[lost.action]}"
            )
            if lost.action != "ignore":
                child.signal(signal.SIGKILL if lost.action == "kill" else signal.SIGTERM)
        elif lost.kill_at is not None and now >= lost.kill_at:
            lost.kill_at = None
            child.signal(signal.SIGKILL)


@dataclass
class _Loss:
    """What has been done about a lost lease; times of CLOCK_BOOTTIME."""

    action: str
    at: float | None = None
    kill_at: float | None = None
