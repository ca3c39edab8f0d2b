"""Move a claim to an etcd lease with another ttl, in one transaction.

An etcd lease keeps the ttl that it was made with. So there is a new one, whose time begins before
the claim is on it, and the claim goes by its id from then on: all that is written down of it, and
what is noted at it, goes from the keys of the old id to those of the new one at once. Whoever
renews by the old id doesn't find it there, and in the same answer where it is now.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.view import claim_reads, parse_claim_view
from leasectl.engines.etcd.claims.writes import rewrite_claim, write_claim
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    end_of,
    present,
    put,
    read,
    read_all,
    unchanged,
    unwritten_since,
)
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, parse_claim
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
            while not self._move(claim_id, ttl_seconds):
                pass

    def _move(self, claim_id: ClaimId, ttl_seconds: float) -> bool:
        """Move a claim, if it is as it was just read; returns whether nothing is left to do."""
        reading = self._gateway.read(
            read_all(self._keys.notes_of(*claim_id)), *claim_reads(self._keys, claim_id)
        )
        notes, *answers = reading.answers
        view = parse_claim_view(answers)
        if view.held is None or not view.is_alive:
            return True
        claim = parse_claim(view.held)
        if claim.lease_duration_seconds is None:
            return True
        new_id, renewed = new_etcd_lease_id(), self._clock.wall()
        moved = claim._replace(etcd_lease_id=new_id, lease_duration_seconds=ttl_seconds)
        self._gateway.grant(new_id, math.ceil(ttl_seconds))
        guards = [
            unchanged(view.held.key, view.held.mod_revision),
            present(self._keys.alive(*claim_id)),
            *self._none_noted_since(claim_id, notes, reading.revision),
        ]
        then = self._writes(claim_id.pool_type, claim, moved, notes, renewed)
        is_moved = self._commit(guards, then, self._keys.held(claim_id.pool_type, new_id))
        self._gateway.revoke_unused(claim.etcd_lease_id if is_moved else new_id)
        return is_moved

    def _none_noted_since(self, claim_id: ClaimId, notes: Found, revision: int) -> Iterator[Json]:
        """Guards: what is noted at a claim is what was read at a revision."""
        start = self._keys.notes_of(*claim_id)
        yield unwritten_since(start, end_of(start), revision)
        yield from (unchanged(kv.key, kv.mod_revision) for kv in notes.items)

    def _writes(
        self, pool_type: str, claim: Claim, moved: Claim, notes: Found, renewed: float
    ) -> list[Json]:
        """What moves a claim, with what is noted at it, as if it had just been renewed."""
        keys, new_id = self._keys, moved.etcd_lease_id
        return [
            *rewrite_claim(keys, pool_type, claim, frozenset(claim.names)),
            *write_claim(keys, pool_type, moved, renewed),
            *(
                put(keys.note(pool_type, new_id, name_in(kv)), kv.value, etcd_lease_id=new_id)
                for kv in notes.items
            ),
        ]

    def _commit(self, guards: Sequence[Json], then: Sequence[Json], new_held: str) -> bool:
        try:
            outcome = self._gateway.commit(guards, then, [read(new_held)])
        except EtcdLeaseGone:  # it has taken too long
            return False
        return outcome.succeeded or outcome.answers[0].first is not None
