"""Remove tickets whose time is over."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.kubernetes.events.events import KubernetesEvents
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.turns import served_in


def remove_dead(
    names: Iterable[str], view: PoolView, store: Store, events: KubernetesEvents
) -> bool:
    """Take tickets away that are over, unless somebody has renewed them.

    Args:
        names: Of their objects.
        view: Their pool as it was seen; it knows of it then.
        store: Where that is.
        events: Of what happens there.

    Returns:
        Whether all of them have gone.
    """
    gone = [_remove_dead(each, view, store, events) for each in list(names)]
    return all(gone)


def _remove_dead(name: str, view: PoolView, store: Store, events: KubernetesEvents) -> bool:
    ticket = view.tickets[name]
    taken = store.take_away(ticket.id, as_seen=True)
    if taken == "done" and name not in served_in(view):  # else it had become a claim
        from leasectl.engines.event_words import WAITER_DIED

        events.withdrawn(ticket, WAITER_DIED)
    if taken == "changed":
        return False
    del view.tickets[name]
    return True
