"""A claim that comes with a membership: a name joins already held.

It is made past the queue and the pace, in the transaction of the membership.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.claims.making import claim_of
from leasectl.engines.etcd.claims.writes import Along, granted_claim
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.gateway.requests import KeyValue, revision_in, unchanged
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.views import MembersView
from leasectl.engines.etcd.records import Claim, Free
from leasectl.model import Ticket


def joining(
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    view: MembersView,
    grants: KeyValue | None,
    *,
    now: float,
) -> tuple[Claim, Along]:
    """What makes of names that nobody holds a claim.

    Args:
        keys: Where things are.
        ticket: What it would have been made of.
        etcd_lease_id: Of the etcd lease that it is attached to, if it expires.
        view: The names, as they were seen.
        grants: The number of the pool's last grant.
        now: Wall clock, in seconds; the etcd lease was made right after.

    Returns:
        What is written, its revision not known yet, and how.
    """
    pool_type = ticket.claimant.request.type
    claim = claim_of(keys, ticket, etcd_lease_id, grants, _chosen(view), now=now)
    guards = (unchanged(keys.grants(pool_type), revision_in(grants)),)
    then = tuple(granted_claim(keys, pool_type, claim, now))
    events = (event_facts.granted(ticket, claim, waited=0.0),)
    return claim, Along(guards, then, events)


def _chosen(view: MembersView) -> Sequence[Free]:
    return [each.free or Free("", 0, each.member.name, None, 0) for each in view.names]
