"""What is to move into a pool when its lease is over: it is in another, which nobody may look at.

Whoever has names be moved so says first in the pool where they are to come that there may be some.
Who waits there, and has nobody before him, looks at them whenever the time of the next of their
leases may be over; that is heard of in no watch of his, and neither are renewals.
"""

from __future__ import annotations

from typing import NamedTuple

from leasectl.engines.kubernetes.claims import Claims
from leasectl.engines.kubernetes.names import label_of_type
from leasectl.engines.kubernetes.objects import MOVES_TO
from leasectl.engines.kubernetes.observed import Observed
from leasectl.engines.kubernetes.recognition import resource_in
from leasectl.engines.kubernetes.store import Store
from leasectl.engines.kubernetes.view import PoolView


class Coming(NamedTuple):
    """What came of looking.

    Args:
        has_come: Something has come by now.
        next_at: When something else may, on the elapsed clock; None for nothing by time.
    """

    has_come: bool = False
    next_at: float | None = None


def look_at_coming(view: PoolView, store: Store, claims: Claims, observed: Observed) -> Coming:
    """See whether what is to move into a pool is held by somebody whose time is over.

    Args:
        view: The pool.
        store: Where it is.
        claims: The claims there, of which those end that are over.
        observed: What was seen of others' lives.
    """
    if view.pool is None or not view.pool.coming:
        return Coming()
    elsewhere = PoolView("")
    for raw in store.labelled(MOVES_TO, label_of_type(view.pool_type)).items:
        resource = resource_in(raw)
        if resource is not None and resource.member.moves_to == view.pool_type:
            elsewhere.resources[resource.id.name] = resource
    over, next_at = observed.look(elsewhere)
    ended = [claims.end_over(elsewhere.resources[name]) for name in over.claims]
    return Coming(any(ended), next_at)
