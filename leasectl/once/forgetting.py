"""Keeping a result no longer."""

from __future__ import annotations

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import claim_key_of
from leasectl.engines.values import Guard
from leasectl.errors import NoLease, NotAllowed, NotFound
from leasectl.leases.acquire import acquire
from leasectl.leases.on_demand import PoolOnDemand, is_needed
from leasectl.leases.release import finish
from leasectl.leases.service import Service
from leasectl.model import Handle, Request
from leasectl.once.results import Results, to_forget
from leasectl.once.work import Work
from leasectl.state.event import Event
from leasectl.text.naming import work_label

_TRIES = 20


def forget(service: Service, work: Work) -> bool:
    """Forget the result of a work, under its lease.

    Args:
        service: Where it is kept.
        work: Which.

    Returns:
        Whether there was one.

    Raises:
        NotAllowed: Somebody does the work, or waits for it.
    """
    results = Results(service.values)
    if results.kept(work) is None:
        if is_needed(service.pools, work.pool_type):
            raise _under_way(work)
        return False
    pool = PoolOnDemand(service, work.pool_type)
    pool.need()
    try:
        handle = _acquire(service, work, pool)
        try:
            kept = results.kept(work)
            (lease,) = handle.leases
            guard = Guard(claim_key_of(handle), lease.name, lease.fence)
            return kept is not None and service.values.change(
                to_forget(kept), guard=guard, event=_event(service, work)
            )
        finally:
            finish(service, handle)
    finally:
        pool.leave()


def _acquire(service: Service, work: Work, pool: PoolOnDemand) -> Handle:
    request = Request(work.pool_type, labels=(work_label(work.key),))
    no_wait, name = Patience(wait_seconds=0), f"once-{work.key}"
    for _ in range(_TRIES):
        try:
            return acquire(service, request, patience=no_wait, called=name)
        except NotFound:
            pool.make()
        except NoLease:
            break
    raise _under_way(work) from None


def _event(service: Service, work: Work) -> Event:
    return Event(
        0,
        service.clock.wall(),
        "work forgotten",
        work.pool_type,
        (work.key,),
        holder_identity=service.caller.identity,
    )


def _under_way(work: Work) -> NotAllowed:
    return NotAllowed(
        f"work {work.key} is under way; see who does it with leasectl status, and ask again when "
        "it is over"
    )
