"""Remove what is over: the tickets of dead waiters, expired claims, names whose time is up.

Each is one write guarded by what was seen, so a renewal at the last moment saves it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import with_member
from leasectl.engines.cluster.objects import Change, ResourceObject
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.rules.events import WAITER_DIED
from leasectl.engines.rules.membership import after_lifetime

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context


def reap(context: Context, view: PoolView) -> bool:
    """Remove all that is over; return whether there were claims or names among it.

    Args:
        context: Of the place.
        view: What was seen of a pool, or of all names.
    """
    if context.only_looks:
        return False
    over = context.observed.look(view).over
    context.observed.save()
    remove_dead(over.tickets, view, context)
    for name in over.claims:
        context.claims.expire(view.resources[name])
    for name in over.lives - over.claims:
        expire_membership(context, view.resources[name])
    return bool(over.claims or over.lives)


def expire_membership(context: Context, resource: ResourceObject) -> bool:
    """Take a name out of its pool when its time there is over, or once it isn't held."""
    member = after_lifetime(resource.member)
    new = with_member(resource, member) if member.is_known else None
    at = context.events.now()
    told = context.events.members_changed([resource.member], [member], at=at)
    return context.objects.write(Change(resource, new, told)).is_done


def remove_dead(names: Iterable[str], view: PoolView, context: Context) -> bool:
    """Remove tickets that are over, unless they were renewed.

    Args:
        names: Of their objects.
        view: Their pool as it was seen; it knows of it then.
        context: Of its place.

    Returns:
        Whether all of them have gone.
    """
    gone = [_remove_dead(each, view, context) for each in list(names)]
    return all(gone)


def _remove_dead(name: str, view: PoolView, context: Context) -> bool:
    ticket = view.tickets[name]
    is_served = view.is_served(ticket)  # then it has become a claim
    told = () if is_served else context.events.withdrawn(ticket, WAITER_DIED)
    if not context.objects.write(Change(ticket, None, told)).is_done:
        return False
    view.drop(name)
    return True
