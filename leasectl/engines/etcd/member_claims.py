"""A claim in etcd that comes with a membership: of who holds what it has just put into a pool.

It is made past the queue and the pace, in the transaction of the membership.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.claim_ends import Along
from leasectl.engines.etcd.claim_making import claim_of
from leasectl.engines.etcd.gateway.requests import KeyValue, put, revision_in, unchanged
from leasectl.engines.etcd.key_values import number_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.member_views import MembersView
from leasectl.engines.etcd.records import Claim, Free, encode_claim
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
    claimant = ticket.claimant
    pool_type = claimant.request.type
    claim_id = ClaimId(pool_type, etcd_lease_id)
    number = 1 if grants is None else 1 + int(number_in(grants))
    claim = claim_of(keys, ticket, etcd_lease_id, number, _chosen(view), now=now)
    attached = 0 if claimant.request.ttl_seconds is None else etcd_lease_id
    guards = (unchanged(keys.grants(pool_type), revision_in(grants)),)
    then = (
        put(keys.grants(pool_type), str(number)),
        put(keys.held(*claim_id), encode_claim(claim)),
        put(keys.alive(*claim_id), "", etcd_lease_id=attached),
        put(keys.renewed(*claim_id), str(now)),
        put(keys.owned(claimant.claim_key, etcd_lease_id), pool_type),
    )
    return claim, Along(guards, then)


def _chosen(view: MembersView) -> Sequence[Free]:
    return [each.free or Free("", 0, each.member.name, None, 0) for each in view.names]
