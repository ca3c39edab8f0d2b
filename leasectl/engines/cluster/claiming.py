"""Claim what was found for the ticket of a request, or for all of its tickets in several pools.

All or nothing (`claims`). In a pool with a pace, the grant is paid for with that. Where the store
doesn't unite changes it is paid before, and so a claim that loses a race costs a pace. The tickets
go with the claim, or afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from leasectl.engines.cluster.claims import Part
from leasectl.engines.cluster.objects import Change, PoolObject, TicketObject
from leasectl.engines.cluster.turns import seconds_left, with_grant
from leasectl.model import Lease

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context
    from leasectl.engines.cluster.ticket import OwnTicket

# Some requests to a server that has answered just before.
_SECONDS = 3.0


def take(context: Context, parts: Sequence[Part]) -> tuple[Lease, ...] | None:
    """Claim what was found; return the leases, or None if another was faster.

    Args:
        context: Of the place.
        parts: What each ticket of one request is to become.

    Raises:
        TicketExpired: Others may have taken one of the tickets for dead by now.
        BackendUnreachable: Some may be claimed; `take_unsure` tells.
    """
    for each in parts:
        if each.own.is_overdue:
            raise each.own.expired()
    besides, paid = [], []
    for each in parts:
        changes = _pay(context, each)
        if changes is None:
            return None
        besides += changes
        paid += [each.new for each in changes if isinstance(each.new, PoolObject)]
    made = context.claims.make(parts, besides)
    if made is None:
        return None
    for pool in paid:  # all of this state directory know since when that grant is there
        seconds_left(pool, context.observed, context.clock.elapsed())
    if paid:
        context.observed.save()
    left = []
    for _, view, chosen in parts:
        had = {name for each in chosen for name in each.had_by} & view.served()
        left += [view.tickets[name] for name in had]
    return _granted(context, [each.own for each in parts], made, left)


def take_unsure(context: Context, owns: Sequence[OwnTicket]) -> tuple[Lease, ...] | None:
    """Return the leases of claims whose answers were lost; give a part of them back."""
    made = context.claims.find(owns)
    return None if made is None else _granted(context, owns, made)


def _pay(context: Context, part: Part) -> list[Change] | None:
    """Return what changes with a claim besides its resources; None if another was faster.

    Where changes aren't united, the pool's pace is paid by now.
    """
    own, (pool, objects) = part.own, (part.view.pool, context.objects)
    assert pool is not None
    besides = []
    if pool.settings.pace_seconds and not own.has_paid:
        paid = with_grant(pool, own.object_name, context.observed, context.clock.elapsed())
        besides.append(Change(pool, paid))
    if objects.unites:
        ticket = part.view.tickets.get(own.object_name) or own.object
        return besides if ticket is None else [*besides, Change(ticket, None)]
    for change in besides:
        written = objects.write(change).object
        if not isinstance(written, PoolObject):
            return None
        own.has_paid = True
        part.view.put(written)
        return [Change(pool, written)]
    return []


def _granted(
    context: Context,
    owns: Sequence[OwnTicket],
    made: Sequence[tuple[Lease, ...]],
    left: Sequence[TicketObject] = (),
) -> tuple[Lease, ...]:
    """Return the leases that tickets have become.

    Args:
        context: Of the place.
        owns: The tickets.
        made: The leases of each.
        left: The tickets that earlier holders of their resources have left.
    """
    ttl, sent_at = owns[0].request.ttl_seconds, min(each.claim_sent_at for each in owns)
    if ttl is not None and context.clock.elapsed() - sent_at >= ttl:
        for own in owns:  # the answers came after the ttl, so others may hold the resources
            context.claims.give_back(own)
        raise owns[0].expired()
    if not context.objects.unites:
        known = context.claims.known(owns[0].claimant.claim_key)
        for own, leases in zip(owns, made):
            of_own = [each for each in known if each.member.pool == own.request.type]
            context.objects.tell(own.told_of_grant(leases, of_own))
        tried = [each for each in owns if each.is_tried]
        if tried or left:
            from leasectl.system.afterwards import begin

            begin(partial(_take_away, context, tried, left))
    return tuple(chain(*made))


def _take_away(context: Context, owns: Sequence[OwnTicket], left: Sequence[TicketObject]) -> None:
    """Remove tickets that have become claims, and those that others left.

    The grant doesn't wait for that. A process that is killed before leaves its tickets, and each
    resource remembers that its ticket has become a claim. The next holder of the resource removes
    that, too; otherwise it expires with its ttl.
    """
    with context.objects.limited(context.clock.elapsed() + _SECONDS):
        for own in owns:
            context.objects.remove(own.as_put())
        for each in left:
            pool_watch = context.session.pool_watch(each.pool)
            seen = None if pool_watch is None else pool_watch.view()
            if seen is None or each.id.name in seen.tickets:
                context.objects.remove(each)
