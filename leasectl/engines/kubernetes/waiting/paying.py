"""Pay a pool's pace, once, before the claim."""

from __future__ import annotations

from leasectl.engines.kubernetes.objects.bodies import with_grant
from leasectl.engines.kubernetes.objects.objects import PACE
from leasectl.engines.kubernetes.objects.reading import annotations_of
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.observed import Observed
from leasectl.engines.kubernetes.queues.pace import after_grant, seconds_left
from leasectl.engines.kubernetes.queues.ticket import OwnTicket


def seconds_to_pay(own: OwnTicket, view: PoolView, observed: Observed, now: float) -> float:
    """How long it takes until the pool's pace lets a ticket through; 0 where it has.

    Args:
        own: Which.
        view: The pool as it was just seen.
        observed: Since when its last grant has been known.
        now: On the elapsed clock.
    """
    if own.has_paid or view.pool is None:
        return 0.0
    return seconds_left(view.pool, observed, now)


def pay(own: OwnTicket, view: PoolView, store: Store, observed: Observed, now: float) -> bool:
    """Have the pool's pace let a ticket through, if it has one; returns whether that is so.

    Args:
        own, view, observed, now: As `seconds_to_pay` has them; the view knows of it then.
        store: Where the pool is.
    """
    pool = view.pool
    if own.has_paid or pool is None or not pool.settings.pace_seconds:
        return True
    body = with_grant(pool, after_grant(pool, observed, now), own.object_name)
    note = body["metadata"]["annotations"][PACE]
    written = store.change(body, lambda raw: annotations_of(raw).get(PACE) == note)
    if written.raw is None:
        return False
    own.has_paid = True
    view.put(written.raw)
    if view.pool is not None:  # have all of this state directory know of the grant
        seconds_left(view.pool, observed, now)
        observed.save()
    return True
