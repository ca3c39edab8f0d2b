"""Run one command under a handle's lease.

It was forked before and waits on a pipe until it is recorded as the handle's guard. So whenever
this process is killed, either the command never starts, or the lease follows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from leasectl.errors import LeaseLost, NotFound
from leasectl.leases.acquire import announce
from leasectl.leases.release import finish
from leasectl.leases.service import Service
from leasectl.model import Handle, Process
from leasectl.run.child import Child, Ending
from leasectl.run.holder_answers import Ask, HolderAnswers
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.start_delay import renew_before_use, wait_to_start
from leasectl.run.supervision import Beside, Supervisor
from leasectl.system.poll import Interrupt
from leasectl.system.process import identify, this_process
from leasectl.text.wording import followed_by

# The command has ended. Its exit status mustn't wait long for a stopped process with the lock.
_GIVE_BACK_SECONDS = 5.0


def run_leased(
    service: Service,
    handle: Handle,
    supervisor: Supervisor,
    child: Child,
    name: str,
    *,
    wait_seconds: float | None,
    start_delay_seconds: float = 0.0,
    ends: Sequence[Interrupt] = (),
    beside: Sequence[Beside] = (),
    ask: Ask | None = None,
) -> Ending:
    """Let a child become its command under a handle's lease, and follow the command to its end.

    Args:
        service: Where the lease comes from.
        handle: As `acquire` returned it, with this process for its runner.
        supervisor: Follows the command.
        child: Forked, and not yet started.
        name: What messages call the command.
        wait_seconds: How long the lock of the records may be waited for; None for no limit.
        start_delay_seconds: How long the command is held back.
        ends: What ends this delay, beside signals.
        beside: What else is looked after while the command runs.
        ask: Starts the command that answers reclaims; None: the request has the answer.

    Returns:
        How the command ended; the lease hasn't been given back yet.

    Raises:
        CommandNotFound, CannotExecute: It never became the command.
        Cancelled: The handle was released meanwhile.
        LeaseLost: The lease was lost, and the command, if it had begun, has ended for it.
        Interrupted: A signal arrived before there was a command to forward it to.
    """
    try:
        guard = identify(child.pid)
    except NotFound:
        return supervisor.supervise(child)  # killed already; its ending says so
    with contextlib.ExitStack() as opened:
        try:
            with service.state.lock_limit.within_wait(wait_seconds):
                watch = _tie(service, handle, guard, name)
            opened.callback(_close, watch)
            answers = HolderAnswers(service, handle, ask=ask)
            opened.callback(_close, answers)
            watch.noted = answers.heed
            answers.heed(None)  # a note from before we listened has woken no process
            if start_delay_seconds:
                interrupts = (supervisor.interrupt(), *ends)
                wait_to_start(watch, start_delay_seconds, interrupts, ended_by=child.pidfd)
        except BaseException:
            child.abandon()
            raise
        return supervisor.supervise(child, watch, (*beside, answers))


def _close(each: LeaseWatch | HolderAnswers) -> None:
    with contextlib.suppress(Exception):  # the command's exit status counts more
        each.close()


def _tie(service: Service, handle: Handle, guard: Process, name: str) -> LeaseWatch:
    """Tie a lease to its guard from now on, and watch it.

    Raises:
        Cancelled: The handle was released meanwhile.
        LeaseLost: The lease has run out, or is about to.
    """
    sent_at = renew_before_use(service, handle)
    announce(service, handle, guard=guard, runner=this_process())
    watch = LeaseWatch(service, handle, renewed_at=sent_at)
    if watch.is_lost(service.clock.elapsed()):
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
        warn(followed_by(error, "the keeper keeps trying to release it"))
