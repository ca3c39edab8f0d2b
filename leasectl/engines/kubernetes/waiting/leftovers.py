"""Remove tickets that have become claims.

Nobody waits for that. Killed before it is done, a process leaves its ticket, of which the resource
remembers that it has had what it waited for, as long as it is there. Whoever has the resource next
takes it away, too, and if nobody does it is over with its ttl.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from leasectl.engines.kubernetes.objects.objects import Identity, ResourceObject
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.engines.kubernetes.queues.turns import served_in
from leasectl.engines.kubernetes.waiting.session import WaitSession
from leasectl.system.clock import Clock

# Some requests to a server that has answered just before.
_SECONDS = 3.0


def left_at(chosen: Sequence[ResourceObject], view: PoolView) -> list[Identity]:
    """The tickets of those who had some resources before, and haven't taken them away yet."""
    if not view.tickets:
        return []
    left = {name for each in chosen for name in each.had_by} & served_in(view)
    return [view.tickets[name].id for name in left]


def begin_taking_away(
    own: OwnTicket, left: Collection[Identity], store: Store, session: WaitSession, clock: Clock
) -> None:
    """Have a ticket go that has become a claim, if it was put, and those that others left.

    Args:
        own: The one.
        left: The others.
        store: Where they are.
        session: That may have seen that they are gone by then.
        clock: Where times come from.
    """
    if own.is_tried or left:
        from leasectl.system.afterwards import begin

        begin(partial(_take_away, own, left, store, session, clock))


def _take_away(
    own: OwnTicket, left: Collection[Identity], store: Store, session: WaitSession, clock: Clock
) -> None:
    with store.limited(clock.elapsed() + _SECONDS):
        if own.is_tried:
            store.delete(own.identity(), as_seen=False)
        pool_watch = session.pool_watch(own.request.type) if left else None
        seen = None if pool_watch is None else pool_watch.view()
        for each in left:
            if seen is None or each.name in seen.tickets:
                store.delete(each, as_seen=False)
