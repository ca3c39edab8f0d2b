"""What a release heeds: names that move, leave or stay cordoned.

That is written below ``bound/`` of few names. So a release tries as if there were none, and only
whoever finds out by that guard that there is asks what.
"""

from __future__ import annotations

from leasectl.engines.etcd.claims.writes import Along, Heeded
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    created_at,
    delete,
    read,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.members.changes import Renaming, events_of, operations_of, pools_of
from leasectl.engines.etcd.members.views import see
from leasectl.engines.etcd.records import Claim

# Whether a release was made is told by what becomes of its claim.
_WORD = "release"


def heed(
    gateway: Gateway,
    keys: Keys,
    claim_id: ClaimId,
    claim: Claim,
    names: frozenset[str],
    *,
    now: float,
) -> Heeded:
    """See what the end of a claim has to heed.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claim_id: Which claim.
        claim: As it was read.
        names: Those of its names that are to be free.
        now: Wall clock, in seconds.
    """
    pool_type = claim_id.pool_type
    wanted = sorted(names)
    found = gateway.read(*(read(keys.bound(pool_type, name)) for name in wanted)).answers
    bound = [name for name, each in zip(wanted, found) if each.first is not None]
    if not bound:
        return Heeded()
    had = dict(zip(claim.names, claim.transitions))
    released = {name: (claim.holder_identity, had[name]) for name in bound}
    view = see(gateway, keys, bound, released=released)
    there = [each for each in view.names if each.member.pool == pool_type]
    renamings = [Renaming(each, each.now(view.pools.types), _WORD) for each in there]
    # Whatever else writes ``bound/`` writes ``member/``, too, or the claim.
    guards = [
        unchanged(keys.member(each.member.name), revision_in(each.fact)) for each in view.names
    ]
    guards += [
        created_at(keys.pool(each), view.records[each].create_revision)
        for each in sorted(pools_of(view, renamings))
    ]
    then = operations_of(keys, view, renamings)
    # Of a pool that is being deleted: the rest of it goes with that.
    gone = [each.member.name for each in view.names if each.member.pool != pool_type]
    then += [delete(keys.bound(pool_type, name)) for name in gone]
    events = events_of(renamings, now=now, caller=claim.holder_identity)
    return Heeded(frozenset(bound), Along(tuple(guards), tuple(then), tuple(events)))
