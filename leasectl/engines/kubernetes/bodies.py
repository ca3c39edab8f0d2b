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
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

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


class _Part(NamedTuple):
    """Some fields of a Lease that are written together; None for one that is removed."""

    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}
    spec: Mapping[str, object] = {}


def body_of(new: Found, seen: Found | None = None) -> Body:
    """Return the Lease that has the facts of an object.

    Args:
        new: The facts as they are to be.
        seen: As they were seen; None for an object that isn't there yet.
    """
    if seen is None:
        body = new_body(new.id.name, kind_of_fact(new))
    else:
        body = as_seen(seen.raw)
        if isinstance(new, ValuesObject):
            _remove_values(body["metadata"])
    before = () if seen is None else _parts(seen)
    for part, part_before in zip_longest(_parts(new), before):
        if part is not None and part != part_before:
            _put(body, part)
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


def _put(body: Body, part: _Part) -> None:
    meta = body["metadata"]
    for fields, changed in zip((meta["labels"], meta["annotations"], body["spec"]), part):
        for key, value in changed.items():
            if value is None:
                fields.pop(key, None)
            else:
                fields[key] = value


def _parts(found: Found) -> Iterable[_Part]:
    """Yield the fields of an object, part by part; those of one kind have the same parts."""
    if isinstance(found, ResourceObject):
        return _resource(found)
    if isinstance(found, TicketObject):
        return _ticket(found)
    if isinstance(found, PoolObject):
        return _pool(found)
    if isinstance(found, BelongingObject):
        record = belonging_record(found.pools, found.pending)
        said = {BELONGING: json.dumps(record), BY: found.made, EXPECT: None}
        return [_Part({}, said), _epoch(found)]
    if isinstance(found, ValuesObject):
        return [_values(found)]
    if isinstance(found, ContentObject):
        notes: dict[str, str | None] = {SUBJECT: found.key}
        notes[KEPT] = json.dumps(_write_said(notes, CONTENT, found.said))
        return [_Part({}, notes)]
    return []


# Resources


def _resource(found: ResourceObject) -> Iterator[_Part]:
    member, claim = found.member, found.claim
    record = member_record(found)
    labels, notes = _in_pool(member.pool)
    labels[MOVES_TO] = names.label_of_type(member.moves_to) if member.moves_to else None
    notes |= {BY: found.made, MEMBER: json.dumps(record) if record else None}
    yield _Part(labels, notes)
    yield _Part({ENTERING: found.entering or None})
    yield _claim(claim)
    ended = note = last = None
    if claim is not None:
        ended = claim.ended or None
        if claim.note is not None:
            said = {"fence": claim.fence, "text": claim.note, "by": claim.note_by}
            note = json.dumps(said)
    if found.fence or found.last_holder is not None:
        tickets = {"tickets": found.last_tickets} if claim is None else {}
        was = {"fence": found.fence, "holder": found.last_holder}
        last = json.dumps({**was, "transitions": found.transitions, **tickets})
    yield from _apart(
        {
            NAME: found.name,
            FREED: found.freed or None,
            CHANGED: found.changed or None,
            ENDED: ended,
            NOTE: note,
            LAST: last,
        }
    )


def _claim(claim: Claim | None) -> _Part:
    """Return what counts of a claim, and what it is to those who read the API's own fields."""
    if claim is None:
        shown = ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime")
        return _Part({CLAIM_LABEL: None}, {CLAIM: None}, dict.fromkeys(shown))
    ttl = claim.ttl_seconds
    return _Part(
        {CLAIM_LABEL: names.label_of_claim(claim.claim_key)},
        {CLAIM: json.dumps(claim_record(claim))},
        {
            "acquireTime": stamp(claim.acquire_time),
            "leaseTransitions": claim.transitions,
            "holderIdentity": claim.holder_identity,
            "renewTime": claim.renewed,
            "leaseDurationSeconds": None if ttl is None else _whole_seconds(ttl),
        },
    )


def show_claim(body: Body, claim: Claim) -> None:
    """Write again what only shows a claim, beside the annotation that counts."""
    _put(body, _claim(claim)._replace(annotations={}))


# Tickets


def _ticket(found: TicketObject) -> Iterator[_Part]:
    labels, notes = _in_pool(found.pool)
    labels[CLAIM_LABEL] = names.label_of_claim(found.claim_key)
    notes[TICKET] = json.dumps(ticket_record(found))
    spec = {
        "holderIdentity": found.holder_identity,
        "leaseDurationSeconds": _whole_seconds(found.ttl_seconds),
        "acquireTime": stamp(found.since),
    }
    yield _Part(labels, notes, spec)
    # Once it is renewed its place is written down, as the object doesn't show it any more.
    place = str(found.place) if found.place else None
    counts_as = None if found.counts_as == found.priority else str(found.counts_as)
    parked = "true" if found.is_parked else None
    notes = {PLACE: place, COUNTS_AS: counts_as, PARKED: parked}
    yield _Part({}, notes, {"renewTime": found.renewed})


# Pools


def _pool(found: PoolObject) -> Iterator[_Part]:
    labels, notes = _in_pool(found.type)
    yield _Part(labels, {**notes, BY: found.made})
    yield _epoch(found)
    pace = (found.level, found.last_grant)
    yield from _apart(
        {
            SETTINGS: json.dumps(settings_record(found.settings)),
            PACE: None if pace == (0.0, "") else json.dumps(pace),
            CHANGED: found.changed or None,
            COMING: "true" if found.coming else None,
            STATE: None if found.state == "open" else json.dumps([found.state, found.word]),
        }
    )


def _epoch(found: PoolObject | BelongingObject) -> _Part:
    epoch = (found.epoch, found.floor)
    return _Part({}, {EPOCH: None if epoch == ("", 0) else json.dumps(epoch)})


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


def _values(found: ValuesObject) -> _Part:
    notes: dict[str, str | None] = {SUBJECT: f"{found.space}/{found.subject}", BY: found.made}
    records = {kind: _write_said(notes, kind, each) for kind, each in found.said.items()}
    untils = {word: until_record(until) for word, until in found.contents.items()}
    notes[KEPT] = json.dumps({"said": records, "contents": untils})
    return _Part({SPACE: names.label_of_type(found.space)}, notes)


def _remove_values(meta: Body) -> None:
    notes = meta["annotations"]
    meta["annotations"] = {k: v for k, v in notes.items() if not k.startswith(VALUE_DOMAIN)}


def _write_said(notes: dict[str, str | None], kind: str, said: Said) -> dict[str, Any]:
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


def _apart(annotations: Mapping[str, str | None]) -> Iterator[_Part]:
    """Yield a part for each annotation."""
    for key, value in annotations.items():
        yield _Part({}, {key: value})


def _in_pool(pool_type: str | None) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return the label and the annotation that name the pool of an object."""
    label = None if pool_type is None else names.label_of_type(pool_type)
    return {POOL: label}, {TYPE: pool_type}


def _whole_seconds(seconds: float) -> int:
    """Return a duration as the API has it: whole seconds, never less than is meant."""
    return min(max(1, math.ceil(seconds)), _LONGEST_SPEC_TTL)
