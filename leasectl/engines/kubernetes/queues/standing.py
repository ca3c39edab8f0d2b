"""A waiter's position and what it waits for."""

from __future__ import annotations

from leasectl.engines.facts import Standing
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.observed import Observed
from leasectl.engines.kubernetes.queues.pace import seconds_left
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.engines.kubernetes.queues.turns import in_order, position_of


def standing_of(own: OwnTicket, view: PoolView, observed: Observed, *, now: float) -> Standing:
    """How things stand for a ticket.

    Args:
        own: Which.
        view: The pool, which is there.
        observed: What was seen of others' lives.
        now: On the elapsed clock.
    """
    assert view.pool is not None
    over = observed.look(view).over
    held = [
        each.claim
        for name, each in view.resources.items()
        if each.claim is not None and name not in over.claims
    ]
    seconds = seconds_left(view.pool, observed, now)
    standing = Standing(
        position=position_of(own.as_seen(view), view, over),
        others=sum(each.id.name != own.object_name for each in in_order(view, over)),
        held=len(held),
        capacity=len(view.resources),
        next_grant_at=now + seconds if seconds else None,
        pace_seconds=view.pool.settings.pace_seconds,
    )
    if not held:
        return standing
    longest = min(held, key=lambda claim: claim.acquire_time)
    return standing._replace(
        longest_holder=longest.holder_identity, longest_since=longest.acquire_time
    )
