"""The end of a claim in etcd, or of a part of it: one transaction, however often it is tried."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd import event_facts
from leasectl.engines.etcd.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Json,
    KeyValue,
    absent,
    delete,
    delete_all,
    present,
    put,
    read,
    unchanged,
)
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, encode_claim, encode_free, parse_claim
from leasectl.errors import BackendUnreachable
from leasectl.model import ReleasedBy
from leasectl.state.event import Event
from leasectl.system.clock import Clock


class Along(NamedTuple):
    """What goes with a step, in its transaction.

    Args:
        guards: Without which none of it is done.
        then: What is done.
        events: What is written of it.
    """

    guards: tuple[Json, ...] = ()
    then: tuple[Json, ...] = ()
    events: tuple[Event, ...] = ()


NOTHING_ALONG = Along()


class Heeded(NamedTuple):
    """What the end of a claim of some names has to heed, as `heed` finds it out.

    Args:
        names: For which there is something; the others are just free.
        guards: What has to be so still.
        then: What becomes of them.
        events: What is told of that.
    """

    names: frozenset[str] = frozenset()
    guards: Sequence[Json] = ()
    then: Sequence[Json] = ()
    events: Sequence[Event] = ()


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
            from leasectl.engines.etcd.member_releases import heed

            before, now = heeded.guards, self._clock.wall()
            heeded = Heeded(*heed(self._gateway, self._keys, claim_id, claim, names, now=now))
            if heeded.guards == before:
                break
        # Without a ttl nothing is attached to the etcd lease any more; it ends soon by itself.
        if done and names.issuperset(claim.names) and claim.lease_duration_seconds is not None:
            revoke_unused(self._gateway, claim.etcd_lease_id)
        return done

    def _try(self, ending: Ending, heeded: Heeded) -> tuple[bool, bool]:
        """Do it, if all is as it is known to be.

        Returns:
            Whether it is done; else whether the claim is as it was read.
        """
        keys, claim_id, claim, held, names, is_alive, by, reason, along = self._keys, *ending
        rest, alive = claim.without(names), keys.alive(*claim_id)
        mark = keys.ended(*claim_id, secrets.token_hex(8))
        free = names - heeded.names
        outcome = self._events.commit(
            [
                unchanged(held.key, held.mod_revision),
                present(alive) if is_alive else absent(alive),
                *(absent(keys.bound(claim_id.pool_type, name)) for name in free),
                *heeded.guards,
                *along.guards,
            ],
            [
                *along.then,
                *heeded.then,
                *(
                    put(
                        keys.free(claim_id.pool_type, each, name),
                        encode_free(claim.holder_identity, changes),
                    )
                    for each, name, changes in zip(claim.fences, claim.names, claim.transitions)
                    if name in free
                ),
                *(delete(keys.note(*claim_id, name)) for name in names if rest.names),
                *rewrite_claim(keys, claim_id.pool_type, rest),
                *([put(mark, "", etcd_lease_id=claim.etcd_lease_id)] if ending.marks else []),
            ],
            [read(held.key), read(mark)],
            events=[
                *event_facts.ended(
                    claim_id.pool_type, claim, names, by=by, now=self._clock.wall(), reason=reason
                ),
                *heeded.events,
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


def rewrite_claim(keys: Keys, pool_type: str, rest: Claim) -> list[Json]:
    """What makes of a claim what is left of it, in a transaction."""
    claim_id = ClaimId(pool_type, rest.etcd_lease_id)
    if rest.names:
        return [put(keys.held(*claim_id), encode_claim(rest))]
    return [
        delete(keys.held(*claim_id)),
        delete(keys.alive(*claim_id)),
        delete(keys.renewed(*claim_id)),
        delete_all(keys.gone(*claim_id)),
        delete_all(keys.notes_of(*claim_id)),
        delete(keys.owned(keys.claim_key_of(rest.claim_key), rest.etcd_lease_id)),
    ]


def revoke_unused(gateway: Gateway, etcd_lease_id: int) -> None:
    """End an etcd lease that nothing is attached to; if that fails it ends by itself."""
    with contextlib.suppress(BackendUnreachable):
        gateway.revoke(etcd_lease_id)
