"""Names that move into a pool once their lease in another is over.

Whoever has names be moved so says first in the pool where they are to come that there may be some.
Who waits there, and has nobody before him, looks at them whenever the time of the next of their
leases may be over; that is heard of in no watch of his, and neither are renewals.
"""

from __future__ import annotations

from leasectl.engines.contract import Outlook
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.objects.names import label_of_type
from leasectl.engines.kubernetes.objects.objects import MOVES_TO
from leasectl.engines.kubernetes.objects.recognition import resource_in
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.observed import Observed


def until_more(
    outlook: Outlook, view: PoolView | None, store: Store, claims: Claims, observed: Observed
) -> Outlook | None:
    """See whether what is to move into a pool is held by somebody whose time is over.

    Args:
        outlook: Of who waits there, for whom there is too little.
        view: The pool.
        store: Where it is.
        claims: The claims there, of which those end that are over.
        observed: What was seen of others' lives.

    Returns:
        The outlook, with the time to look again at; None where something has come.
    """
    if view is None or view.pool is None or not view.pool.coming:
        observed.save()
        return outlook
    elsewhere = PoolView("")
    for raw in store.labelled(MOVES_TO, label_of_type(view.pool_type)).items:
        resource = resource_in(raw)
        if resource is not None and resource.member.moves_to == view.pool_type:
            elsewhere.resources[resource.id.name] = resource
    over, next_at = observed.look(elsewhere)
    observed.save()
    ended = [claims.end_over(elsewhere.resources[name]) for name in over.claims]
    return None if any(ended) else outlook._replace(look_again_at=next_at)
