"""Build the bodies of writes of resources."""

from __future__ import annotations

import json
import os
from typing import Any

from leasectl.engines.kubernetes.objects import names
from leasectl.engines.kubernetes.objects.bodies import (
    Body,
    as_seen,
    micro_time,
    new_body,
    put_in_pool,
    whole_seconds,
)
from leasectl.engines.kubernetes.objects.objects import (
    BY,
    CHANGED,
    CLAIM,
    CLAIM_LABEL,
    ENDED,
    ENTERING,
    FREED,
    LAST,
    MEMBER,
    MOVES_TO,
    NAME,
    NOTE,
    Claim,
    Identity,
    ResourceObject,
)
from leasectl.engines.membership import Member


def new_resource(member: Member, *, grace_seconds: float = 0.0) -> Body:
    """A name that nobody holds, in a pool or only expected in one.

    Args:
        member: What is so of it.
        grace_seconds: If it comes to the default pool: so long nobody gets it there.
    """
    body = new_body(names.object_of_resource(member.name), "resource")
    body["metadata"]["annotations"][NAME] = member.name
    raw = ResourceObject(Identity("", "", 0), body, Member(member.name))
    return _with_member(body, member, raw, grace_seconds)


def new_entering(name: str, word: str) -> Body:
    """A name of which nothing is so yet, and that somebody may be about to put into a pool."""
    body = new_resource(Member(name))
    body["metadata"]["labels"][ENTERING] = word
    return body


def entering(resource: ResourceObject, word: str) -> Body:
    """A resource that somebody may be about to put into a pool; for an empty word nobody is."""
    body = as_seen(resource.raw)
    body["metadata"]["labels"].pop(ENTERING, None)
    if word:
        body["metadata"]["labels"][ENTERING] = word
    return body


def touched(resource: ResourceObject) -> Body:
    """The same resource as another version, so that nobody writes it by what was seen before."""
    body = as_seen(resource.raw)
    body["metadata"]["annotations"][CHANGED] = os.urandom(4).hex()
    return body


def with_member(resource: ResourceObject, member: Member, *, grace_seconds: float = 0.0) -> Body:
    """A resource of which something else is so; the arguments are those of `new_resource`."""
    return _with_member(as_seen(resource.raw), member, resource, grace_seconds)


def claimed(resource: ResourceObject, claim: Claim) -> Body:
    """A resource with a new claim, whoever had it before."""
    body = as_seen(resource.raw)
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
    return with_claim_shown(body, claim)


def renewed(resource: ResourceObject, claim: Claim) -> Body:
    """A resource whose claim has been given its full time again, or another ttl."""
    body = as_seen(resource.raw)
    body["metadata"]["annotations"][CLAIM] = _claim_record(claim)
    body["metadata"]["labels"][CLAIM_LABEL] = names.label_of_claim(claim.claim_key)
    return with_claim_shown(body, claim)


def ended(resource: ResourceObject, reason: str) -> Body:
    """A resource whose claim was ended by force, and is kept for its holder for as long as it had.

    Its renewal time stays: whoever has seen that goes on to count from there.
    """
    body = as_seen(resource.raw)
    body["metadata"]["annotations"][ENDED] = reason
    return body


def noted(resource: ResourceObject, text: str | None, *, renewal: Claim | None = None) -> Body:
    """A resource of whose claim something else is noted.

    Args:
        resource: As it was seen.
        text: What is noted; None for nothing.
        renewal: The claim with its full time again; None to leave it as it is.
    """
    body = as_seen(resource.raw) if renewal is None else renewed(resource, renewal)
    body["metadata"]["annotations"].pop(NOTE, None)
    if text is not None and resource.claim is not None:
        # With a word that no other note has, by which its writer knows it again.
        body["metadata"]["annotations"][NOTE] = json.dumps(
            {"fence": resource.claim.fence, "text": text, "by": os.urandom(4).hex()}
        )
    return body


def released(resource: ResourceObject, member: Member, *, is_had: bool = True) -> Body:
    """A resource that nobody holds any more.

    Args:
        resource: As it was seen.
        member: What is so of it after that.
        is_had: Whoever held it got what it had waited for: the ticket, if it is still there, waits
            for nothing any more.
    """
    body = as_seen(resource.raw)
    meta, spec = body["metadata"], body["spec"]
    if resource.claim is not None:
        meta["annotations"][LAST] = json.dumps(
            {
                "fence": resource.fence,
                "holder": resource.last_holder,
                "transitions": resource.transitions,
                "tickets": resource.had_by if is_had else resource.claim.left,
            }
        )
    meta["labels"].pop(CLAIM_LABEL, None)
    for gone in (CLAIM, ENDED, NOTE):
        meta["annotations"].pop(gone, None)
    # A word by which who has freed it knows that it was he, also when it is claimed again.
    meta["annotations"][FREED] = os.urandom(4).hex()
    for gone in ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime"):
        spec.pop(gone, None)
    return _with_member(body, member, resource, 0.0)


def with_claim_shown(body: Body, claim: Claim) -> Body:
    """The same, with what its claim is to those who read the API's own fields."""
    spec = body["spec"]
    spec["holderIdentity"] = claim.holder_identity
    spec["renewTime"] = claim.renewed
    if claim.ttl_seconds is None:
        spec.pop("leaseDurationSeconds", None)
    else:
        spec["leaseDurationSeconds"] = whole_seconds(claim.ttl_seconds)
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
    if claim.left:
        record["left"] = claim.left
    if claim.release_after_seconds is not None:
        record["release_after"] = claim.release_after_seconds
    return json.dumps(record)


def _with_member(body: Body, member: Member, before: ResourceObject, grace: float) -> Body:
    meta = body["metadata"]
    put_in_pool(meta, member.pool)
    # Of two who make the same of a name, one has done it.
    meta["annotations"][BY] = os.urandom(8).hex()
    for gone in (ENTERING, MOVES_TO):
        meta["labels"].pop(gone, None)
    if member.moves_to is not None:
        meta["labels"][MOVES_TO] = names.label_of_type(member.moves_to)
    record: dict[str, Any] = {}
    if member.expected is not None:
        record["expected"] = member.expected
    for field in ("by_default", "cordoned", "cordon", "moves_to", "leaves", "joined"):
        if getattr(member, field):
            record[field] = getattr(member, field)
    if member.lifetime is not None:
        process, ttl = member.lifetime
        record["lifetime"] = {
            "process": None if process is None else process.encode(),
            "ttl_seconds": ttl,
        }
        same = member.joined == before.member.joined
        record["life"] = before.joined if same else os.urandom(4).hex()
    if member.by_default:
        if not before.member.by_default and grace:
            record["grace"] = (grace, os.urandom(4).hex())
        elif before.member.by_default and before.grace_seconds is not None:
            record["grace"] = (before.grace_seconds, before.came)
    if member.properties:
        record["properties"] = member.properties
    if record:
        meta["annotations"][MEMBER] = json.dumps(record)
    else:
        meta["annotations"].pop(MEMBER, None)
    return body
