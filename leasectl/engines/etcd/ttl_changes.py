"""Another ttl for claims in etcd: one transaction moves a claim to an etcd lease of that ttl.

An etcd lease keeps the ttl that it was made with. So there is a new one, whose time begins before
the claim is on it, and the claim goes by its id from then on: all that is written down of it goes
from the keys of the old id to those of the new one at once. Whoever renews by the old id doesn't
find it there, and in the same answer where it is now.
"""

from __future__ import annotations

import math

from leasectl.engines.etcd.claim_ends import revoke_unused, rewrite_claim
from leasectl.engines.etcd.claim_view import claim_reads, parse_claim_view
from leasectl.engines.etcd.claims import EtcdClaims
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import KeyValue, present, put, read, unchanged
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, encode_claim, parse_claim
from leasectl.system.clock import Clock


class EtcdTtlChanges:
    """Changes the ttl of claims below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claims: Those claims.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, claims: EtcdClaims, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._clock = clock

    def change(self, claim_key: str, ttl_seconds: float) -> None:
        """Give the claims that a claim key finds another ttl, as far as they are good and have one.

        Args:
            claim_key: What finds them.
            ttl_seconds: From now on.
        """
        for claim_id in self._claims.index(claim_key):
            while not self._move(claim_id, claim_key, ttl_seconds):
                pass

    def _move(self, claim_id: ClaimId, claim_key: str, ttl_seconds: float) -> bool:
        """Move a claim, if it is as it was just read; returns whether nothing is left to do."""
        view = parse_claim_view(self._gateway.read(*claim_reads(self._keys, claim_id)).answers)
        if view.held is None or not view.is_alive:
            return True
        claim = parse_claim(view.held)
        if claim.lease_duration_seconds is None:
            return True
        new_id, renewed = new_etcd_lease_id(), self._clock.wall()
        moved = claim._replace(etcd_lease_id=new_id, lease_duration_seconds=ttl_seconds)
        self._gateway.grant(new_id, math.ceil(ttl_seconds))
        is_moved = self._commit(claim_id, claim_key, claim, moved, view.held, renewed)
        revoke_unused(self._gateway, claim.etcd_lease_id if is_moved else new_id)
        return is_moved

    def _commit(
        self,
        claim_id: ClaimId,
        claim_key: str,
        claim: Claim,
        moved: Claim,
        held: KeyValue,
        renewed: float,
    ) -> bool:
        keys, pool_type, new_id = self._keys, claim_id.pool_type, moved.etcd_lease_id
        new_held = keys.held(pool_type, new_id)
        try:
            outcome = self._gateway.commit(
                [unchanged(held.key, held.mod_revision), present(keys.alive(*claim_id))],
                [
                    *rewrite_claim(self._keys, pool_type, claim.without(frozenset(claim.names))),
                    put(new_held, encode_claim(moved)),
                    put(keys.alive(pool_type, new_id), "", etcd_lease_id=new_id),
                    put(keys.renewed(pool_type, new_id), str(renewed)),
                    put(keys.owned(claim_key, new_id), pool_type),
                ],
                [read(new_held)],
            )
        except EtcdLeaseGone:  # it has taken too long
            return False
        return outcome.succeeded or outcome.answers[0].first is not None
