"""Run one command under a handle's lease.

It was forked before and waits on a pipe until it is recorded as the handle's guard. So whenever
this process is killed, either the command never starts, or the lease follows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from leasectl.errors import LeaseLost, NotAllowed, NotFound
from leasectl.leases.acquire import announce, released_before_use
from leasectl.leases.release import finish
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, whole
from leasectl.run.child import Child, Ending
from leasectl.run.holder_answers import Ask, HolderAnswers
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.start_delay import wait_to_start
from leasectl.run.supervision import Beside, Supervisor
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt
from leasectl.system.process import identify, this_process
from leasectl.text.wording import followed_by

# The command has ended. Its exit status mustn't wait long for a stopped process with the lock.
_GIVE_BACK_SECONDS = 5.0


class LeasedCommand:
    """Runs a command under what a handle holds.

    Args:
        service: Where the lease comes from.
        handle: As `acquire` returned it, with this process for its runner.
        supervisor: Who follows the command.
        clock: Where times come from.
    """

    def __init__(
        self,
        service: Service,
        handle: Handle,
        supervisor: Supervisor,
        *,
        clock: Clock,
    ) -> None:
        self._service = service
        self._handle = handle
        self._supervisor = supervisor
        self._clock = clock

    def run(
        self,
        child: Child,
        name: str,
        *,
        wait_seconds: float | None,
        start_delay_seconds: float = 0.0,
        ends: Sequence[Interrupt] = (),
        beside: Sequence[Beside] = (),
        ask: Ask | None = None,
    ) -> Ending:
        """Let a child become its command, and follow that to its end.

        Args:
            child: Forked, and not yet started.
            name: What messages call the command.
            wait_seconds: How long the lock of the records may be waited for; None for no limit.
            start_delay_seconds: How long the command is held back.
            ends: What ends that, beside signals.
            beside: What else is to be looked after meanwhile.
            ask: Starts what decides when a reclaim asks for some of it; None: its request does.

        Returns:
            How it ended; the lease hasn't been given back yet.

        Raises:
            CommandNotFound, CannotExecute: It never became the command.
            Cancelled: The handle was released meanwhile.
            LeaseLost: The lease was lost, and the command, if it had begun, has ended for it.
            Interrupted: A signal arrived before there was a command to forward it to.
        """
        try:
            guard = identify(child.pid)
        except NotFound:
            return self._supervisor.supervise(child)  # killed already; its ending says so
        try:
            with self._service.state.lock_limit.within_wait(wait_seconds):
                watch = self._tie_to(guard, name)
        except BaseException:
            child.abandon()
            raise
        try:
            answers = HolderAnswers(self._service, self._handle, ask=ask, clock=self._clock)
            watch.noted = answers.heed
            answers.heed(None)  # a note from before we listened has woken no process
        except BaseException:
            child.abandon()
            watch.close()
            raise
        try:
            if start_delay_seconds:
                self._hold_back(child, watch, start_delay_seconds, ends)
            return self._supervisor.supervise(child, watch, (*beside, answers))
        finally:
            for each in (answers, watch):
                with contextlib.suppress(Exception):  # the command's exit status counts more
                    each.close()

    def _hold_back(
        self, child: Child, watch: LeaseWatch, seconds: float, ends: Sequence[Interrupt]
    ) -> None:
        """Let some time pass before the command begins, unless the lease or the child goes."""
        try:
            wait_to_start(
                self._service,
                self._handle,
                watch,
                seconds,
                (self._supervisor.interrupt(), *ends),
                ended_by=child.pidfd,
                clock=self._clock,
            )
        except BaseException:
            child.abandon()
            raise

    def _tie_to(self, guard: Process, name: str) -> LeaseWatch:
        """Tie the lease to its guard from now on, and watch it.

        Raises:
            Cancelled: The handle was released meanwhile.
            LeaseLost: The lease has run out, or is about to.
        """
        handle, sent_at = self._handle, self._clock.elapsed()
        try:
            if handle.request.ttl_seconds is not None:
                renew(self._service, whole(handle))  # it may have been granted long ago
            announce(self._service, handle, guard=guard, runner=this_process())
        except NotAllowed:
            raise released_before_use(handle) from None
        watch = LeaseWatch(self._service, handle, renewed_at=sent_at, clock=self._clock)
        if watch.is_lost(self._clock.elapsed()):
            subject = watch.subject
            watch.close()
            raise LeaseLost(
                f"the lease of {subject} was lost before {name} could be started; nothing was run"
            )
        return watch


def give_back(service: Service, handle: Handle, *, warn: Callable[[str], None]) -> None:
    """Release a handle that a command ran under, and forget it.

    Args:
        service: Where its lease comes from.
        handle: Which.
        warn: Called with a line for people, if it can't be done now.
    """
    try:
        with service.state.lock_limit.within(_GIVE_BACK_SECONDS):
            finish(service, handle, by="run")
    except Exception as error:
        # The command's exit status counts more; the keeper has seen its end too.
        warn(followed_by(error, "the keeper goes on trying to release it"))
