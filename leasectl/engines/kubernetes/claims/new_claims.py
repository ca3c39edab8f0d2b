"""What a new claim writes to each resource."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.kubernetes.objects.bodies import micro_time
from leasectl.engines.kubernetes.objects.fields import parse_time
from leasectl.engines.kubernetes.objects.objects import Claim, ResourceObject
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.engines.kubernetes.queues.turns import served_in

FENCES_PER_VERSION = 1000


def claims_of(
    own: OwnTicket,
    view: PoolView,
    chosen: Sequence[ResourceObject],
    *,
    wall: float,
    first: int = 0,
) -> list[Claim]:
    """The claims that a ticket becomes, one for each resource; `claims` says what of fences.

    Args:
        own: Whose they become.
        view: What was seen, from which they are told.
        chosen: The resources, as they were seen.
        wall: Wall clock, in seconds.
        first: The number of the first resource, among those that are claimed so.
    """
    claimant, renewed = own.claimant, micro_time(wall)
    now = parse_time(renewed)  # as everybody reads it
    identity, place = claimant.holder_identity, own.as_seen(view).place
    floor = 0 if view.pool is None else view.pool.floor
    base = max(view.version, floor) * FENCES_PER_VERSION + first
    served = served_in(view) if view.tickets else set()
    fences = [max(base + n, each.fence + 1) for n, each in enumerate(chosen)]
    return [
        Claim(
            claim_key=own.claim_key,
            ticket=own.object_name,
            place=place,
            grant=fences[0],
            fence=fence,
            holder_identity=identity,
            acquire_time=now,
            renew_time=now,
            renewed=renewed,
            ttl_seconds=claimant.request.ttl_seconds,
            transitions=each.transitions + (each.last_holder not in (None, identity)),
            labels=claimant.request.labels,
            holder_pid=claimant.holder_pid,
            release_after_seconds=claimant.request.release_after_seconds,
            left=tuple(sorted(served.intersection(each.had_by))),
        )
        for each, fence in zip(chosen, fences)
    ]
