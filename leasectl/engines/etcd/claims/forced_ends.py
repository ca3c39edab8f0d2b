"""End claims by force, while their holders may still use them.

What is taken becomes a claim of its own that was never alive, and so is kept as what etcd ended too
early is (`EarlyEnds`): until its holder gives it up, and no longer than the last renewal gave it.
How long that is etcd tells, by what is left of the etcd lease, and counts by a new one; so nobody's
clock matters. The claim that it was taken from can't be renewed with it any more, and whoever
watches what its claim key finds (``owned/``) is told at once, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.view import claim_reads, parse_claim_view
from leasectl.engines.etcd.claims.writes import rewrite_claim, write_owned
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import ROUNDED_SECONDS, Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import KeyValue, present, put, read, unchanged
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, encode_claim, parse_claim
from leasectl.system.clock import Clock


class EtcdForcedEnds:
    """Ends claims below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for what is taken at once.
        claims: Those claims.
        lost: Told of what was taken.
        clock: Where times come from.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        events: EtcdEvents,
        claims: EtcdClaims,
        *,
        lost: LostListener,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._clock = clock
        self._claims = claims
        self._lost = lost

    def end(
        self, claim_key: str, names: Sequence[str], reason: str, *, at_once: bool
    ) -> tuple[str, ...]:
        """Implements `PoolAdmin.end_early`; a guard can't be seen from here.

        What is to be free at once is taken first, as if it was to be kept: that tells its holder.
        Killed in between, this leaves it kept, and who asks once more frees it.
        """
        wanted, ended = frozenset(names), []
        for claim_id in self._claims.index(claim_key):
            ended += self._end(claim_id, wanted, reason)
        if ended:
            self._lost(claim_key, ended)
        if at_once:
            for claim_id in self._claims.index(claim_key):
                freed = self._claims.end_kept(claim_id, wanted, reason=reason)
                ended += [name for name in freed if name not in ended]
        return tuple(ended)

    def _end(self, claim_id: ClaimId, wanted: frozenset[str], reason: str) -> list[str]:
        keys = self._keys
        while True:
            *answers, pool = self._gateway.read(
                *claim_reads(keys, claim_id), read(keys.pool(claim_id.pool_type))
            ).answers
            view = parse_claim_view(answers)
            if view.held is None or not view.is_alive or pool.first is None:
                return []
            claim = parse_claim(view.held)
            taken = [name for name in claim.names if name in wanted]
            if not taken:
                return []
            if claim.lease_duration_seconds is None:
                freed = self._claims.give_back(
                    claim_id, frozenset(taken), by="force", reason=reason
                )
                return [name for _, name in freed]
            seen = [kv for kv in (view.held, pool.first, view.renewed) if kv is not None]
            if self._take(claim_id, claim, frozenset(taken), seen, reason):
                return taken

    def _take(
        self,
        claim_id: ClaimId,
        claim: Claim,
        names: frozenset[str],
        seen: Sequence[KeyValue],
        reason: str,
    ) -> bool:
        """Take names out of a claim into one that is only kept, if all is as it was seen."""
        keys, pool_type = self._keys, claim_id.pool_type
        kept_names = frozenset(claim.names) - names
        ended = claim.without(kept_names)._replace(etcd_lease_id=new_etcd_lease_id(), ended=reason)
        ended_id, keeping_id = ClaimId(pool_type, ended.etcd_lease_id), new_etcd_lease_id()
        left = math.ceil(self._gateway.time_left(claim.etcd_lease_id)) + ROUNDED_SECONDS
        self._gateway.grant(keeping_id, left)
        kept = keys.gone_kept(*ended_id, keeping_id)
        dates = [kv for kv in seen if kv.key == keys.renewed(*claim_id)]
        loss = event_facts.lost(
            pool_type, claim, names, by="force", now=self._clock.wall(), reason=reason
        )
        try:
            outcome = self._events.commit(
                [
                    present(keys.alive(*claim_id)),
                    *(unchanged(kv.key, kv.mod_revision) for kv in seen),
                ],
                [
                    *rewrite_claim(keys, pool_type, claim, names),
                    put(keys.held(*ended_id), encode_claim(ended)),
                    write_owned(keys, pool_type, ended),
                    *(put(keys.renewed(*ended_id), kv.value) for kv in dates),
                    put(keys.gone_seen(*ended_id), ""),
                    put(kept, "", etcd_lease_id=keeping_id),
                    put(keys.pool(pool_type), ""),  # wakes the head, which is to wait for the end
                ],
                [read(keys.held(*ended_id))],
                events=[loss],
            )
        except EtcdLeaseGone:  # it has taken too long
            return False
        is_taken = outcome.succeeded or any(found.first for found in outcome.answers)
        if not is_taken:
            self._gateway.revoke_unused(keeping_id)
        elif not kept_names:
            self._gateway.revoke_unused(claim.etcd_lease_id)
        return is_taken
