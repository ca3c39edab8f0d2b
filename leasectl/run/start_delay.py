"""Spread the starts of commands that were granted at once.

During the delay the lease is looked after as while the command runs: it is renewed, and its loss, a
signal or the end of the guard ends the delay. If this process is killed in it, nothing is left: the
grant wasn't announced yet, or the process that the lease follows has ended too.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.errors import LeaseError, LeaseLost, NotAllowed
from leasectl.leases.acquire import released_before_use
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.run.lease_watch import LeaseWatch
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Interrupt, is_readable, sleep


def hold_back(
    service: Service,
    handle: Handle,
    seconds: float,
    interrupts: Sequence[Interrupt],
    *,
    clock: Clock,
) -> None:
    """Hold a lease for a while before anybody hears of it; then it is to be announced.

    Args:
        service: Where it comes from.
        handle: As `acquire` returned it, with this process for its runner.
        seconds: For how long.
        interrupts: What ends it.
        clock: Where times come from.

    Raises:
        LeaseLost: The lease was lost.
        Cancelled: The handle was released.
    """
    sent_at = clock.elapsed()
    if handle.request.ttl_seconds is not None:
        try:
            renew(service, whole(handle))  # it may have been granted long ago
        except NotAllowed:
            raise released_before_use(handle) from None
    watch = LeaseWatch(service, handle, renewed_at=sent_at, clock=clock)
    try:
        wait_to_start(service, handle, watch, seconds, interrupts, clock=clock)
    finally:
        watch.close()


def wait_to_start(
    service: Service,
    handle: Handle,
    watch: LeaseWatch,
    seconds: float,
    interrupts: Sequence[Interrupt],
    *,
    ended_by: int | None = None,
    clock: Clock,
) -> None:
    """Sleep, and look after a lease.

    Args:
        service: Where it comes from.
        handle: What it is held by, recorded with this process for its runner.
        watch: Of the lease.
        seconds: For how long.
        interrupts: What ends it.
        ended_by: A descriptor that ends it quietly when it can be read; None for none.
        clock: Where times come from.

    Raises:
        LeaseLost: The lease was lost.
        Cancelled: The handle was released.
    """
    until = clock.elapsed() + seconds
    while True:
        now = clock.elapsed()
        gone = _why_gone(service, handle, watch, now)
        if gone is not None:
            if ended_by is not None and is_readable(ended_by, 0):
                return  # the guard ended first: the keeper releases its lease
            raise gone
        if now >= until:
            return
        woken = sleep(
            wake_fds=(*watch.fds(), *(() if ended_by is None else (ended_by,))),
            interrupts=interrupts,
            until=earliest(until, watch.until(now)),
            now=clock.elapsed,
        )
        if ended_by in woken:
            return
        watch.look(woken)


def _why_gone(service: Service, handle: Handle, watch: LeaseWatch, now: float) -> LeaseError | None:
    if not watch.is_lost(now):
        if service.current(whole(handle)) is not None:
            return None
        watch.look_at_record()  # no wake-up may have come yet
        if not watch.is_lost(now):
            return released_before_use(handle)
    why = f" ({watch.reason})" if watch.reason else ""
    return LeaseLost(
        f"the lease of {watch.subject} was lost{why} before anything was started under it"
    )
