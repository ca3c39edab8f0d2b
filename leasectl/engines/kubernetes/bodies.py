"""Encode the facts of an object as a Lease.

Whatever others have written into an object of ours stays, but for ``managedFields``, which are half
of it: an empty entry takes them away, except from what `kubectl apply` has made. What a write
leaves as it was seen isn't written anew either. A change carries the uid and resourceVersion seen,
so that it is refused where that isn't so any more; a name that isn't there would be made by it
without the uid.

All small values of a subject are in one object, with an annotation for each kind; each content is
an object of its own. Text is kept as it is, so that `kubectl describe lease` shows it; other bytes
are in base64. The object of a subject lists its contents before they are created, so none is
forgotten if its writer is killed.
"""

from __future__ import annotations

import json
import math
import os
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from leasectl.engines.cluster.objects import (
    BelongingObject,
    Claim,
    ContentObject,
    Found,
    PoolObject,
    ResourceObject,
    Said,
    TicketObject,
    Unreadable,
    ValuesObject,
    stamp,
)
from leasectl.engines.cluster.records import (
    belonging_record,
    claim_record,
    member_record,
    said_record,
    settings_record,
    ticket_record,
    until_record,
)
from leasectl.engines.kubernetes import names
from leasectl.engines.kubernetes.names import (
    BELONGING,
    BY,
    CHANGED,
    CLAIM,
    CLAIM_LABEL,
    COMING,
    COUNTS_AS,
    ENDED,
    ENTERING,
    EPOCH,
    EXPECT,
    FREED,
    KEPT,
    KIND,
    LAST,
    MEMBER,
    MOVES_TO,
    NAME,
    NOTE,
    PACE,
    PARKED,
    PLACE,
    POOL,
    SETTINGS,
    SPACE,
    STATE,
    SUBJECT,
    TICKET,
    TYPE,
    VALUE_DOMAIN,
    Json,
)
from leasectl.engines.kubernetes.reading import annotation_of
from leasectl.engines.values import CONTENT

Body = dict[str, Any]

API_VERSION = "coordination.k8s.io/v1"
# Where `kubectl apply` has left this, and nothing says to whom the fields of the object belong,
# `kubectl apply --server-side` takes away all that isn't in its file: a claim.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST_SPEC_TTL = 2**31 - 1


def body_of(new: Found, seen: Found | None = None) -> Body:
    """Return the Lease that has the facts of an object.

    Args:
        new: The facts as they are to be.
        seen: As they were seen; None for an object that isn't there yet.
    """
    body = new_body(new.id.name, kind_of_fact(new)) if seen is None else as_seen(seen.raw)
    if isinstance(new, ResourceObject):
        _encode_resource(body, new, seen if isinstance(seen, ResourceObject) else None)
    elif isinstance(new, TicketObject):
        _encode_ticket(body, new, is_new=seen is None)
    elif isinstance(new, PoolObject):
        _encode_pool(body, new, seen if isinstance(seen, PoolObject) else None)
    elif isinstance(new, BelongingObject):
        _encode_belonging(body, new)
    elif isinstance(new, ValuesObject):
        _encode_values(body, new)
    elif isinstance(new, ContentObject):
        body["metadata"]["annotations"][SUBJECT] = new.key
        record = _write_said(body["metadata"]["annotations"], CONTENT, new.said)
        body["metadata"]["annotations"][KEPT] = json.dumps(record)
    return body


def kind_of_fact(found: Found) -> str:
    """Return the kind of an object, as its label has it."""
    return found.kind if isinstance(found, Unreadable) else _KINDS[type(found)]


_KINDS: Mapping[type, str] = {
    ResourceObject: "resource",
    TicketObject: "ticket",
    PoolObject: "pool",
    BelongingObject: "belonging",
    ValuesObject: "values",
    ContentObject: "content",
}


# Resources


def _encode_resource(body: Body, new: ResourceObject, seen: ResourceObject | None) -> None:
    meta = body["metadata"]
    notes = meta["annotations"]
    if seen is None:
        notes[NAME] = new.name
    if seen is None or new.made != seen.made:
        _encode_member(meta, new)
    if seen is None or new.entering != seen.entering:
        _set(meta["labels"], ENTERING, new.entering)
    for key, word, before in (
        (FREED, new.freed, seen and seen.freed),
        (CHANGED, new.changed, seen and seen.changed),
    ):
        if word != (before or ""):
            notes[key] = word
    if seen is not None and new.claim != seen.claim:
        _encode_claim(body, new.claim, seen.claim)
        _encode_last(notes, new)


def _encode_member(meta: Body, new: ResourceObject) -> None:
    member = new.member
    put_in_pool(meta, member.pool)
    meta["annotations"][BY] = new.made
    _set(meta["labels"], MOVES_TO, member.moves_to and names.label_of_type(member.moves_to))
    record = member_record(new)
    _set(meta["annotations"], MEMBER, json.dumps(record) if record else None)


def _encode_last(notes: Body, new: ResourceObject) -> None:
    record: dict[str, Any] = {
        "fence": new.fence,
        "holder": new.last_holder,
        "transitions": new.transitions,
    }
    if new.claim is None:
        record["tickets"] = new.last_tickets
    notes[LAST] = json.dumps(record)


def _encode_claim(body: Body, claim: Claim | None, before: Claim | None) -> None:
    notes, labels, spec = body["metadata"]["annotations"], body["metadata"]["labels"], body["spec"]
    if claim is None:
        labels.pop(CLAIM_LABEL, None)
        for gone in (CLAIM, ENDED, NOTE):
            notes.pop(gone, None)
        for gone in ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime"):
            spec.pop(gone, None)
        return
    if before is None or claim.ended != before.ended:
        _set(notes, ENDED, claim.ended)
    if before is None or (claim.note, claim.note_by) != (before.note, before.note_by):
        note = {"fence": claim.fence, "text": claim.note, "by": claim.note_by}
        _set(notes, NOTE, None if claim.note is None else json.dumps(note))
    if before is not None and claim == before._replace(
        ended=claim.ended, note=claim.note, note_by=claim.note_by
    ):
        return
    labels[CLAIM_LABEL] = names.label_of_claim(claim.claim_key)
    notes[CLAIM] = json.dumps(claim_record(claim))
    if before is None or (before.claim_key, before.fence) != (claim.claim_key, claim.fence):
        for gone in () if claim.ended else (ENDED,):
            notes.pop(gone, None)
        if claim.note is None:
            notes.pop(NOTE, None)
        spec["acquireTime"] = stamp(claim.acquire_time)
        spec["leaseTransitions"] = claim.transitions
    show_claim(body, claim)


def show_claim(body: Body, claim: Claim) -> None:
    """Write what a claim is to those who read the API's own fields."""
    spec = body["spec"]
    spec["holderIdentity"] = claim.holder_identity
    spec["renewTime"] = claim.renewed
    if claim.ttl_seconds is None:
        spec.pop("leaseDurationSeconds", None)
    else:
        spec["leaseDurationSeconds"] = _whole_seconds(claim.ttl_seconds)


# Tickets


def _encode_ticket(body: Body, new: TicketObject, *, is_new: bool) -> None:
    meta, spec = body["metadata"], body["spec"]
    if not is_new:
        # Its place is written down, as the object doesn't show it any more.
        meta["annotations"][PLACE] = str(new.place)
        counts_as = None if new.counts_as == new.priority else str(new.counts_as)
        _set(meta["annotations"], COUNTS_AS, counts_as)
        _set(meta["annotations"], PARKED, "true" if new.is_parked else None)
        spec["renewTime"] = new.renewed
        return
    meta["labels"][CLAIM_LABEL] = names.label_of_claim(new.claim_key)
    put_in_pool(meta, new.pool)
    meta["annotations"][TICKET] = json.dumps(ticket_record(new))
    body["spec"] = {
        "holderIdentity": new.holder_identity,
        "leaseDurationSeconds": _whole_seconds(new.ttl_seconds),
        "acquireTime": new.renewed,
        "renewTime": new.renewed,
    }


# Pools


def _encode_pool(body: Body, new: PoolObject, seen: PoolObject | None) -> None:
    notes = body["metadata"]["annotations"]
    if seen is None:
        put_in_pool(body["metadata"], new.type)
        notes[BY] = new.made
    if seen is None or new.settings != seen.settings:
        notes[SETTINGS] = json.dumps(settings_record(new.settings))
    if (new.epoch, new.floor) != ((seen.epoch, seen.floor) if seen else ("", 0)):
        notes[EPOCH] = json.dumps([new.epoch, new.floor])
    if (new.level, new.last_grant) != ((seen.level, seen.last_grant) if seen else (0.0, "")):
        notes[PACE] = json.dumps([new.level, new.last_grant])
    if new.changed != (seen.changed if seen else ""):
        notes[CHANGED] = new.changed
    _set(notes, COMING, "true" if new.coming else None)
    state = None if new.state == "open" else json.dumps([new.state, new.word])
    _set(notes, STATE, state)


def _encode_belonging(body: Body, new: BelongingObject) -> None:
    notes = body["metadata"]["annotations"]
    record = belonging_record(new.pools, new.pending)
    notes[BELONGING], notes[BY] = json.dumps(record), new.made
    notes.pop(EXPECT, None)
    if new.epoch or new.floor:
        notes[EPOCH] = json.dumps([new.epoch, new.floor])


def new_expectations(patterns: Mapping[str, str]) -> Body:
    """Return the object by which a manifest expects names in pools.

    Its only annotation that matters is one that leasectl itself never writes. So applying it again
    keeps the default pool and all other patterns. `entering.settle` takes it for a pending change.

    Args:
        patterns: The pool of each pattern.
    """
    body = new_body(names.OBJECT_OF_BELONGING, "belonging")
    body["metadata"]["annotations"][EXPECT] = json.dumps(dict(sorted(patterns.items())))
    return body


# Values


def _encode_values(body: Body, new: ValuesObject) -> None:
    meta = body["metadata"]
    notes = {k: v for k, v in meta["annotations"].items() if not k.startswith(VALUE_DOMAIN)}
    meta["annotations"] = notes
    meta["labels"][SPACE] = names.label_of_type(new.space)
    notes[SUBJECT], notes[BY] = f"{new.space}/{new.subject}", new.made
    records = {kind: _write_said(notes, kind, each) for kind, each in new.said.items()}
    untils = {word: until_record(until) for word, until in new.contents.items()}
    notes[KEPT] = json.dumps({"said": records, "contents": untils})


def _write_said(notes: dict[str, Any], kind: str, said: Said) -> dict[str, Any]:
    """Write a value into annotations; return the rest of its record."""
    text = _as_text(said.content)
    notes[annotation_of(kind)] = b64encode(said.content).decode() if text is None else text
    record = said_record(said)
    return record if text is not None else {**record, "base64": True}


def _as_text(content: bytes) -> str | None:
    """Return bytes as the text that they are, if it is safe to print in a terminal."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None


# Of all


def new_body(object_name: str, kind: str) -> Body:
    """Return an object of ours with nothing in it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": {
            "name": object_name,
            "labels": {KIND: kind},
            # By which its maker knows it again, if the answer is lost.
            "annotations": {BY: os.urandom(8).hex()},
        },
        "spec": {},
    }


def as_seen(raw: Json) -> Body:
    """Return a copy that may be changed, at the depth at which that is done here."""
    meta = dict(raw.get("metadata") or {})
    meta["labels"] = dict(meta.get("labels") or {})
    meta["annotations"] = dict(meta.get("annotations") or {})
    if not (_APPLIED in meta["annotations"] and meta.get("managedFields")):
        meta["annotations"].pop(_APPLIED, None)
        meta["managedFields"] = [{}]
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": meta,
        "spec": dict(raw.get("spec") or {}),
    }


def put_in_pool(meta: Mapping[str, Any], pool_type: str | None) -> None:
    """Set the label and the annotation that name the pool of an object."""
    meta["annotations"].pop(TYPE, None)
    meta["labels"].pop(POOL, None)
    if pool_type is not None:
        meta["annotations"][TYPE] = pool_type
        meta["labels"][POOL] = names.label_of_type(pool_type)


def _set(fields: Body, key: str, value: object) -> None:
    if value:
        fields[key] = value
    else:
        fields.pop(key, None)


def _whole_seconds(seconds: float) -> int:
    """Return a duration as the API has it: whole seconds, never less than is meant."""
    return min(max(1, math.ceil(seconds)), _LONGEST_SPEC_TTL)
