"""What a transaction writes for a claim: pure functions."""

from __future__ import annotations

from typing import NamedTuple

from leasectl.engines.etcd.gateway.requests import Json, KeyValue, delete, delete_all, put
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, encode_claim
from leasectl.state.event import Event
from leasectl.text.wording import printable

_LONGEST_REASON = 1000


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
    """What the end of a claim of some names has to heed.

    Args:
        names: For which there is something; the others are just free.
        along: What has to be so still, what becomes of them, and what is told of that.
    """

    names: frozenset[str] = frozenset()
    along: Along = NOTHING_ALONG


def granted_claim(keys: Keys, pool_type: str, claim: Claim, renewed: float) -> list[Json]:
    """What writes a claim as the pool's last grant; the arguments are those of `write_claim`."""
    grants = put(keys.grants(pool_type), str(claim.grant))
    return [grants, *write_claim(keys, pool_type, claim, renewed)]


def write_claim(keys: Keys, pool_type: str, claim: Claim, renewed: float) -> list[Json]:
    """What writes a claim that is good, where there is none of its id.

    Args:
        keys: Where things are.
        pool_type: Of its pool.
        claim: What it is to say; it is attached to its etcd lease if it expires.
        renewed: When that was last kept alive, wall clock, in seconds.
    """
    claim_id = ClaimId(pool_type, claim.etcd_lease_id)
    attached = 0 if claim.lease_duration_seconds is None else claim.etcd_lease_id
    return [
        put(keys.held(*claim_id), encode_claim(claim)),
        put(keys.alive(*claim_id), "", etcd_lease_id=attached),
        put(keys.renewed(*claim_id), str(renewed)),
        write_owned(keys, pool_type, claim),
    ]


def rewrite_claim(keys: Keys, pool_type: str, claim: Claim, names: frozenset[str]) -> list[Json]:
    """What makes of a claim what is left of it without some names, or nothing."""
    claim_id, rest = ClaimId(pool_type, claim.etcd_lease_id), claim.without(names)
    if rest.names:
        gone = [name for name in claim.names if name in names]
        return [
            put(keys.held(*claim_id), encode_claim(rest)),
            *(delete(keys.note(*claim_id, name)) for name in gone),
        ]
    return [
        delete(keys.held(*claim_id)),
        delete(keys.alive(*claim_id)),
        delete(keys.renewed(*claim_id)),
        delete_all(keys.gone(*claim_id)),
        delete_all(keys.notes_of(*claim_id)),
        delete(_owned(keys, claim)),
    ]


def write_owned(keys: Keys, pool_type: str, claim: Claim) -> Json:
    """What writes that a claim is found by its claim key, and why it has ended, if it has.

    `key_values.type_in` reads the type back, and `reason_in` the rest.
    Written anew, as it is, it wakes who watches what its holder has.
    """
    return put(_owned(keys, claim), f"{pool_type} {claim.ended}" if claim.ended else pool_type)


def reason_in(kv: KeyValue) -> str:
    """Who has ended a claim by force and why, as ``owned/`` has it; empty for one that is good."""
    return printable(kv.value.partition(" ")[2], longest=_LONGEST_REASON)


def _owned(keys: Keys, claim: Claim) -> str:
    return keys.owned(keys.claim_key_of(claim.claim_key), claim.etcd_lease_id)
