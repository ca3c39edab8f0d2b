"""Read only what a grant changes, once the ticket before has gone.

All else it has seen as it was put. Whoever claims by that is guarded against what has changed since
then: other resources, other settings, somebody who counts with more. So it is one request as a look
is, for less than half of what that reads, between one grant and the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    count,
    read,
    read_all,
    read_last_created,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.view import NO_NEEDS, QueueView
from leasectl.engines.etcd.records import parse_settings
from leasectl.engines.facts import NO_SETTINGS
from leasectl.model import Request, Ticket


def glance(
    gateway: Gateway, keys: Keys, ticket: Ticket, seen: QueueView | None, news: Sequence[KeyValue]
) -> QueueView | None:
    """See whether it is a ticket's turn, and what there is to take for it.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        seen: What was seen of its queue last.
        news: What it has been told of since.

    Returns:
        None where one has to look: it isn't its turn, there isn't enough, or that doesn't tell.
    """
    request = ticket.claimant.request
    if seen is None or not _may_do(request, seen, news):
        return None
    before, queued, held, alive, grants, frees = gateway.read(
        read_last_created(keys.tickets(request.type), before=ticket.number),
        count(keys.queueds(request.type)),
        count(keys.helds(request.type)),
        count(keys.alives(request.type)),
        read(keys.grants(request.type)),
        read_all(keys.frees(request.type), limit=request.count),
    ).answers
    # The one before it may have died, too; as in a look, that is told of.
    all_live = (queued.count, held.count) == (before.count, alive.count)
    if before.items or not all_live or len(frees.items) < request.count:
        return None
    return seen._replace(before=None, grants=grants.first, page=frees.items)


def _may_do(request: Request, seen: QueueView, news: Sequence[KeyValue]) -> bool:
    """Tell whether there was something to take, and nothing to see to but the ticket before it."""
    has_gone = bool(news) and all(seen.before and kv.key == seen.before.key for kv in news)
    is_plain = request.name is None and not request.where and seen.needs == NO_NEEDS
    is_set = seen.settings is not None and parse_settings(seen.settings) != NO_SETTINGS
    is_quiet = not (seen.others or seen.died or seen.expired or seen.is_ranked or is_set)
    return has_gone and is_plain and is_quiet and bool(seen.page)
