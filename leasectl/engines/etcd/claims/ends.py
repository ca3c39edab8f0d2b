"""End a claim, or a part of one, in one transaction."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from leasectl.engines.etcd.claims.writes import NOTHING_ALONG, Along, Heeded, rewrite_claim
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    absent,
    present,
    put,
    read,
    unchanged,
)
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, encode_free, parse_claim
from leasectl.model import ReleasedBy
from leasectl.system.clock import Clock


class Ending(NamedTuple):
    """A claim that is to end, or some of it; as `ClaimEnds.end` has it."""

    claim_id: ClaimId
    claim: Claim
    held: KeyValue
    names: frozenset[str]
    is_alive: bool
    by: ReleasedBy
    reason: str
    along: Along

    @property
    def marks(self) -> bool:
        """Whether a key on the claim's etcd lease tells that this has been done."""
        return self.is_alive and self.claim.lease_duration_seconds is not None


class ClaimEnds:
    """Ends claims below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for each end.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, events: EtcdEvents, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._clock = clock

    def end(
        self,
        claim_id: ClaimId,
        claim: Claim,
        held: KeyValue,
        names: frozenset[str],
        *,
        is_alive: bool,
        by: ReleasedBy,
        reason: str = "",
        along: Along = NOTHING_ALONG,
    ) -> bool:
        """Put a claim's resources back among the free ones, if it is still as it was read.

        Whether an earlier try did that whose answer was lost, or somebody else, is told by a key
        that goes with the etcd lease. For what has none, it is told by what is left of the claim.

        Args:
            claim_id: Which.
            claim: As it was read.
            held: Where it was read.
            names: Some of its names, or all.
            is_alive: Whether it was good then.
            by: Who ends it, for the record of events.
            reason: Likewise; who does it by force, and why.
            along: What is done with it, or keeps it from being done.

        Returns:
            Whether that has been done.
        """
        ending = Ending(claim_id, claim, held, names, is_alive, by, reason, along)
        heeded = Heeded()
        while True:
            done, is_as_it_was = self._try(ending, heeded)
            if done or not is_as_it_was:
                break
            from leasectl.engines.etcd.members.releases import heed

            before, now = heeded.along.guards, self._clock.wall()
            heeded = heed(self._gateway, self._keys, claim_id, claim, names, now=now)
            if heeded.along.guards == before:
                break
        # Without a ttl nothing is attached to the etcd lease any more; it ends soon by itself.
        if done and names.issuperset(claim.names) and claim.lease_duration_seconds is not None:
            self._gateway.revoke_unused(claim.etcd_lease_id)
        return done

    def _try(self, ending: Ending, heeded: Heeded) -> tuple[bool, bool]:
        """Do it, if all is as it is known to be.

        Returns:
            Whether it is done; else whether the claim is as it was read.
        """
        keys, claim_id, claim, held, names, is_alive, by, reason, along = self._keys, *ending
        alive = keys.alive(*claim_id)
        mark = keys.ended(*claim_id, secrets.token_hex(8))
        free = names - heeded.names
        outcome = self._events.commit(
            [
                unchanged(held.key, held.mod_revision),
                present(alive) if is_alive else absent(alive),
                *(absent(keys.bound(claim_id.pool_type, name)) for name in free),
                *heeded.along.guards,
                *along.guards,
            ],
            [
                *along.then,
                *heeded.along.then,
                *(
                    put(
                        keys.free(claim_id.pool_type, each, name),
                        encode_free(claim.holder_identity, changes),
                    )
                    for each, name, changes in zip(claim.fences, claim.names, claim.transitions)
                    if name in free
                ),
                *rewrite_claim(keys, claim_id.pool_type, claim, names),
                *([put(mark, "", etcd_lease_id=claim.etcd_lease_id)] if ending.marks else []),
            ],
            [read(held.key), read(mark)],
            events=[
                *event_facts.ended(
                    claim_id.pool_type, claim, names, by=by, now=self._clock.wall(), reason=reason
                ),
                *heeded.along.events,
                *along.events,
            ],
        )
        if outcome.succeeded:
            return True, False
        left, marked = (found.first for found in outcome.answers)
        if left is not None and left.mod_revision == held.mod_revision:
            return False, True
        gone = left is None or names.isdisjoint(parse_claim(left).names)
        done = outcome.repeated and (marked is not None if ending.marks else gone)
        return done, False
