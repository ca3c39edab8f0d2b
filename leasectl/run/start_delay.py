"""Spread the starts of commands that were granted at once.

During the delay the lease is looked after as while the command runs: it is renewed, and its loss, a
signal or the end of the guard ends the delay. If this process is killed in it, nothing is left: the
grant wasn't announced yet, or the process that the lease follows has ended too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from leasectl.errors import LeaseError, LeaseLost, NotAllowed
from leasectl.leases.acquire import released_before_use
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.run.lease_watch import LeaseWatch
from leasectl.system.clock import earliest
from leasectl.system.poll import Interrupt, is_readable, sleep


def renew_before_use(service: Service, handle: Handle) -> float:
    """Renew a lease with a ttl, which may have been granted long ago, before it is used.

    Returns:
        When that was sent, CLOCK_BOOTTIME.

    Raises:
        LeaseLost: The lease expired or was taken away.
        Cancelled: The handle was released meanwhile.
    """
    sent_at = service.clock.elapsed()
    if handle.request.ttl_seconds is not None:
        try:
            renew(service, whole(handle))
        except NotAllowed:
            raise released_before_use(handle) from None
    return sent_at


def hold_back(
    service: Service, handle: Handle, seconds: float, interrupts: Sequence[Interrupt]
) -> None:
    """Hold a lease for a while before its caller hears of it; then it is to be announced.

    Args:
        service: Where it comes from.
        handle: As `acquire` returned it, with this process for its runner.
        seconds: For how long.
        interrupts: What ends it.

    Raises:
        LeaseLost: The lease was lost.
        Cancelled: The handle was released.
    """
    sent_at = renew_before_use(service, handle)
    with closing(LeaseWatch(service, handle, renewed_at=sent_at)) as watch:
        wait_to_start(watch, seconds, interrupts)


def wait_to_start(
    watch: LeaseWatch,
    seconds: float,
    interrupts: Sequence[Interrupt],
    *,
    ended_by: int | None = None,
) -> None:
    """Sleep, and look after a lease.

    Args:
        watch: Of the lease, recorded with this process for its runner.
        seconds: For how long.
        interrupts: What ends it.
        ended_by: A descriptor that ends it quietly when it can be read; None for none.

    Raises:
        LeaseLost: The lease was lost.
        Cancelled: The handle was released.
    """
    clock, ends = watch.service.clock, () if ended_by is None else (ended_by,)
    until = clock.elapsed() + seconds
    while True:
        now = clock.elapsed()
        gone = _why_gone(watch, now)
        if gone is not None:
            if ended_by is not None and is_readable(ended_by, 0):
                return  # the guard ended first: the keeper releases its lease
            raise gone
        if now >= until:
            return
        woken = sleep(
            wake_fds=(*watch.fds(), *ends),
            interrupts=interrupts,
            until=earliest(until, watch.until(now)),
            now=clock.elapsed,
        )
        if ended_by in woken:
            return
        watch.look(woken)


def _why_gone(watch: LeaseWatch, now: float) -> LeaseError | None:
    if not watch.is_lost(now):
        if watch.service.current(whole(watch.handle)) is not None:
            return None
        watch.look_at_record()  # no wake-up may have come yet
        if not watch.is_lost(now):
            return released_before_use(watch.handle)
    why = f" ({watch.reason})" if watch.reason else ""
    return LeaseLost(
        f"the lease of {watch.subject} was lost{why} before anything was started under it"
    )
