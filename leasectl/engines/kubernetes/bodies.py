"""How objects are written: what becomes of one that was seen, or a new one.

Whatever others have written into an object of ours stays, but for ``managedFields``, which are half
of it: an empty entry takes them away. A change carries uid and resourceVersion of what was seen, so
that it is refused where that isn't so any more; a name that isn't there would be made by it without
the uid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from leasectl.engines.facts import PoolSettings
from leasectl.engines.kubernetes import names
from leasectl.engines.kubernetes.objects import (
    CLAIM,
    CLAIM_LABEL,
    COUNTS_AS,
    DELETING,
    ENDED,
    KIND,
    LAST,
    MEMBER,
    NAME,
    NOTE,
    PACE,
    PLACE,
    POOL,
    SETTINGS,
    TICKET,
    TYPE,
    Claim,
    Json,
    PoolObject,
    ResourceObject,
    TicketObject,
)
from leasectl.engines.membership import Member
from leasectl.model import Claimant
from leasectl.system.clock import rfc3339

Body = dict[str, Any]

API_VERSION = "coordination.k8s.io/v1"
_LONGEST_SPEC_TTL = 2**31 - 1


def micro_time(wall_seconds: float, *, after: str = "") -> str:
    """A time as the API wants it, six digits of a second; another one than that before it.

    Args:
        wall_seconds: Wall clock.
        after: What was written last: a write that changes nothing is none, and renews nothing.
    """
    text = rfc3339(wall_seconds)
    if text == after:
        text = rfc3339(wall_seconds + 0.000_002)
    assert text is not None
    return text


# Resources


def new_resource(member: Member) -> Body:
    """A name that nobody holds, in a pool or only expected in one."""
    body = _new(names.object_of_resource(member.name), "resource")
    body["metadata"]["annotations"][NAME] = member.name
    return _with_member(body, member)


def with_member(resource: ResourceObject, member: Member) -> Body:
    """A resource of which something else is so."""
    return _with_member(_as_seen(resource.raw), member)


def claimed(resource: ResourceObject, claim: Claim) -> Body:
    """A resource with a new claim, whoever had it before."""
    body = _as_seen(resource.raw)
    meta, spec = body["metadata"], body["spec"]
    meta["labels"][CLAIM_LABEL] = names.label_of_claim(claim.claim_key)
    for gone in (ENDED, NOTE):
        meta["annotations"].pop(gone, None)
    meta["annotations"][CLAIM] = _claim_record(claim)
    meta["annotations"][LAST] = json.dumps(
        {"fence": claim.fence, "holder": claim.holder_identity, "transitions": claim.transitions}
    )
    spec["acquireTime"] = micro_time(claim.acquire_time)
    spec["leaseTransitions"] = claim.transitions
    return _with_claim(body, claim)


def renewed(resource: ResourceObject, claim: Claim) -> Body:
    """A resource whose claim has been given its full time again, or another ttl."""
    body = _as_seen(resource.raw)
    body["metadata"]["annotations"][CLAIM] = _claim_record(claim)
    body["metadata"]["labels"][CLAIM_LABEL] = names.label_of_claim(claim.claim_key)
    return _with_claim(body, claim)


def ended(resource: ResourceObject, reason: str) -> Body:
    """A resource whose claim was ended by force, and is kept for its holder for as long as it had.

    Its renewal time stays: whoever has seen that goes on to count from there.
    """
    body = _as_seen(resource.raw)
    body["metadata"]["annotations"][ENDED] = reason
    return body


def released(resource: ResourceObject, member: Member) -> Body:
    """A resource that nobody holds any more.

    Args:
        resource: As it was seen.
        member: What is so of it after that.
    """
    body = _as_seen(resource.raw)
    meta, spec = body["metadata"], body["spec"]
    meta["labels"].pop(CLAIM_LABEL, None)
    for gone in (CLAIM, ENDED, NOTE):
        meta["annotations"].pop(gone, None)
    for gone in ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime"):
        spec.pop(gone, None)
    return _with_member(body, member)


def _with_claim(body: Body, claim: Claim) -> Body:
    spec = body["spec"]
    spec["holderIdentity"] = claim.holder_identity
    spec["renewTime"] = claim.renewed
    if claim.ttl_seconds is None:
        spec.pop("leaseDurationSeconds", None)
    else:
        spec["leaseDurationSeconds"] = _whole(claim.ttl_seconds)
    return body


def _claim_record(claim: Claim) -> str:
    record: dict[str, Any] = {
        "key": claim.claim_key,
        "ticket": claim.ticket,
        "place": claim.place,
        "grant": claim.grant,
        "fence": claim.fence,
        "holder": claim.holder_identity,
        "acquired": micro_time(claim.acquire_time),
        "renewed": claim.renewed,
        "ttl": claim.ttl_seconds,
        "transitions": claim.transitions,
        "labels": claim.labels,
    }
    if claim.holder_pid is not None:
        record["pid"] = claim.holder_pid
    if claim.release_after_seconds is not None:
        record["release_after"] = claim.release_after_seconds
    return json.dumps(record)


def _with_member(body: Body, member: Member) -> Body:
    meta = body["metadata"]
    _in_pool(meta, member.pool)
    record: dict[str, Any] = {}
    if member.expected is not None:
        record["expected"] = member.expected
    for field in ("by_default", "cordoned", "moves_to", "leaves", "joined"):
        if getattr(member, field):
            record[field] = getattr(member, field)
    if member.lifetime is not None:
        process, ttl = member.lifetime
        record["lifetime"] = {
            "process": None if process is None else process.encode(),
            "ttl_seconds": ttl,
        }
    if member.properties:
        record["properties"] = member.properties
    if record:
        meta["annotations"][MEMBER] = json.dumps(record)
    else:
        meta["annotations"].pop(MEMBER, None)
    return body


# Tickets


def new_ticket(
    object_name: str, claimant: Claimant, claim_key: str, *, ttl_seconds: float, wall: float
) -> Body:
    """A ticket that is about to be put.

    Args:
        object_name: Of the new object.
        claimant: Who waits, for what.
        claim_key: Of the claimant, with its state id.
        ttl_seconds: After so long without a renewal it is dead.
        wall: Wall clock, in seconds.
    """
    request = claimant.request
    body = _new(object_name, "ticket")
    meta = body["metadata"]
    meta["labels"][CLAIM_LABEL] = names.label_of_claim(claim_key)
    _in_pool(meta, request.type)
    meta["annotations"][TICKET] = json.dumps(
        {
            "key": claim_key,
            "holder": claimant.holder_identity,
            "count": request.count,
            "name": request.name,
            "where": request.where,
            "priority": request.priority,
            "labels": request.labels,
            "pid": claimant.process.pid if claimant.process else None,
            "ttl": ttl_seconds,
        }
    )
    now = micro_time(wall)
    body["spec"] = {
        "holderIdentity": claimant.holder_identity,
        "leaseDurationSeconds": _whole(ttl_seconds),
        "acquireTime": now,
        "renewTime": now,
    }
    return body


def renewed_ticket(ticket: TicketObject, *, wall: float, counts_as: int) -> Body:
    """A ticket whose waiter lives; its place is written down, as the object doesn't show it now."""
    body = _as_seen(ticket.raw)
    annotations, spec = body["metadata"]["annotations"], body["spec"]
    annotations[PLACE] = str(ticket.place)
    if counts_as == ticket.priority:
        annotations.pop(COUNTS_AS, None)
    else:
        annotations[COUNTS_AS] = str(counts_as)
    spec["renewTime"] = micro_time(wall, after=str(spec.get("renewTime")))
    return body


# Pools


def new_pool(pool_type: str, settings: PoolSettings) -> Body:
    """A pool with nothing in it."""
    body = _new(names.object_of_pool(pool_type), "pool")
    _in_pool(body["metadata"], pool_type)
    body["metadata"]["annotations"][SETTINGS] = json.dumps(settings._asdict())
    return body


def with_settings(pool: PoolObject, settings: PoolSettings) -> Body:
    """A pool that grants as these say."""
    body = _as_seen(pool.raw)
    body["metadata"]["annotations"][SETTINGS] = json.dumps(settings._asdict())
    return body


def with_grant(pool: PoolObject, level: float, grant: str) -> Body:
    """A pool whose pace has let one through.

    Args:
        pool: As it was seen.
        level: What its grants owe the pace then.
        grant: What tells that one from all others.
    """
    body = _as_seen(pool.raw)
    body["metadata"]["annotations"][PACE] = json.dumps([level, grant])
    return body


def deleting(pool: PoolObject, *, is_deleting: bool) -> Body:
    """A pool that somebody is about to delete, or isn't any more."""
    body = _as_seen(pool.raw)
    body["metadata"]["annotations"].pop(DELETING, None)
    if is_deleting:
        body["metadata"]["annotations"][DELETING] = "true"
    return body


# Of all


def _new(object_name: str, kind: str) -> Body:
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": {"name": object_name, "labels": {KIND: kind}, "annotations": {}},
        "spec": {},
    }


def _as_seen(raw: Json) -> Body:
    """A copy that may be changed, at the depth at which that is done here."""
    meta = dict(raw.get("metadata") or {})
    meta["labels"] = dict(meta.get("labels") or {})
    meta["annotations"] = dict(meta.get("annotations") or {})
    meta["managedFields"] = [{}]
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": meta,
        "spec": dict(raw.get("spec") or {}),
    }


def _in_pool(meta: Mapping[str, Any], pool_type: str | None) -> None:
    meta["annotations"].pop(TYPE, None)
    meta["labels"].pop(POOL, None)
    if pool_type is not None:
        meta["annotations"][TYPE] = pool_type
        meta["labels"][POOL] = names.label_of_type(pool_type)


def _whole(seconds: float) -> int:
    """A duration as the API has it: whole seconds, never less than is meant."""
    return min(max(1, math.ceil(seconds)), _LONGEST_SPEC_TTL)
