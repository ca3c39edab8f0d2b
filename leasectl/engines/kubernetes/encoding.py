"""Encode the facts of an object as a Lease, and parse Leases.

Whatever others have written into an object of ours stays, but for ``managedFields``, which are half
of it: an empty entry takes them away, except from what `kubectl apply` has made. What a write
leaves as it was seen isn't written anew either. A change carries the uid and resourceVersion seen,
so that it is refused where that isn't so any more; a name that isn't there would be made by it
without the uid.

All small values of a subject are in one object, with an annotation for each kind; each content is
an object of its own. Text is kept as it is, so that `kubectl describe lease` shows it; other bytes
are in base64. The object of a subject lists its contents before they are created, so none is
forgotten if its writer is killed.

Any user who may edit Leases may write anything. An unreadable object is never a crash: such a
resource isn't granted, and such a ticket counts as one that could use any resource until it
expires. `doctor` names both.
"""

from __future__ import annotations

import json
import math
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from leasectl.engines.cluster.objects import (
    BelongingObject,
    Claim,
    ContentObject,
    Found,
    Identity,
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
    mapping,
    member_record,
    parse_time,
    read_belonging,
    read_claim,
    read_grace,
    read_member,
    read_natural,
    read_not_negative,
    read_note,
    read_patterns,
    read_positive,
    read_safe,
    read_said,
    read_settings,
    read_state,
    read_ticket,
    read_until,
    said_record,
    settings_record,
    ticket_record,
    until_record,
)
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
    OBJECT_OF_BELONGING,
    PACE,
    PARKED,
    PLACE,
    POOL,
    SETTINGS,
    SPACE,
    STATE,
    SUBJECT,
    TICKET,
    TICKET_PREFIX,
    TYPE,
    VALUE_DOMAIN,
    Json,
    label_of_claim,
    label_of_type,
    object_of_content,
    object_of_pool,
    object_of_resource,
    object_of_values,
)
from leasectl.engines.rules.membership import Pools
from leasectl.engines.values import CONTENT, parts_of
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_json,
    read_name,
    read_optional,
    read_text,
    reason_of,
)
from leasectl.text.wording import printable

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
        body = new_body(new.id.name, _KINDS[type(new)])
    else:
        body = as_seen(seen.raw)
        if isinstance(new, ValuesObject):
            _remove_values(body["metadata"])
    before = () if seen is None else _parts(seen)
    for part, part_before in zip_longest(_parts(new), before):
        if part is not None and part != part_before:
            _put(body, part)
    return body


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
    labels[MOVES_TO] = label_of_type(member.moves_to) if member.moves_to else None
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
        {CLAIM_LABEL: label_of_claim(claim.claim_key)},
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
    labels[CLAIM_LABEL] = label_of_claim(found.claim_key)
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
    body = new_body(OBJECT_OF_BELONGING, "belonging")
    body["metadata"]["annotations"][EXPECT] = json.dumps(dict(sorted(patterns.items())))
    return body


# Values


def _values(found: ValuesObject) -> _Part:
    notes: dict[str, str | None] = {SUBJECT: f"{found.space}/{found.subject}", BY: found.made}
    records = {kind: _write_said(notes, kind, each) for kind, each in found.said.items()}
    untils = {word: until_record(until) for word, until in found.contents.items()}
    notes[KEPT] = json.dumps({"said": records, "contents": untils})
    return _Part({SPACE: label_of_type(found.space)}, notes)


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
    label = None if pool_type is None else label_of_type(pool_type)
    return {POOL: label}, {TYPE: pool_type}


def _whole_seconds(seconds: float) -> int:
    """Return a duration as the API has it: whole seconds, never less than is meant."""
    return min(max(1, math.ceil(seconds)), _LONGEST_SPEC_TTL)


# Parsing


def identity_of(raw: Json) -> Identity:
    """Which object that is, as the server has written it."""
    meta = mapping(mapping(raw).get("metadata"))
    version = str(meta.get("resourceVersion", ""))
    is_number = version.isascii() and version.isdecimal() and len(version) < 20
    number = int(version) if is_number else 0
    return Identity(str(meta.get("name", "")), str(meta.get("uid", "")), number)


def kind_of(raw: Json) -> str:
    """Which kind of ours an object says that it is; empty for one that isn't ours."""
    kind = labels_of(raw).get(KIND, "")
    return kind if isinstance(kind, str) else ""


def parse_object(raw: Json) -> Found | None:
    """Read an object; None for one of another kind, or that isn't ours."""
    read = _READ.get(kind_of(raw))
    if read is None:
        return None
    id_ = identity_of(raw)
    try:
        return read(id_, raw)
    except MALFORMED as error:
        why = printable(reason_of(error), longest=80)
        if kind_of(raw) == "ticket":  # until its time is over it may be somebody's
            pool = annotations_of(raw).get(TYPE)
            renewed = str(mapping(raw.get("spec")).get("renewTime"))
            return TicketObject(id_, raw, str(pool), id_.version, renewed=renewed)
        return Unreadable(id_, raw, kind_of(raw), why)


def annotations_of(raw: Json) -> dict[str, Any]:
    """The annotations of an object, whatever they are."""
    return dict(mapping(mapping(raw.get("metadata")).get("annotations")))


def labels_of(raw: Json) -> dict[str, Any]:
    """The labels of an object."""
    return dict(mapping(mapping(raw.get("metadata")).get("labels")))


# Of each kind


def _read_resource(id_: Identity, raw: Json) -> ResourceObject:
    notes = annotations_of(raw)
    name = read_name(notes[NAME])
    if id_.name != object_of_resource(name):
        raise Malformed(f"its annotations are those of resource {name}")
    pool = _type_in(raw, notes) if notes.get(TYPE) is not None else None
    last = mapping(read_json(notes.get(LAST, "{}")))
    said = mapping(read_json(notes.get(MEMBER, "{}")))
    grace, came = read_grace(said)
    claim = _read_claim(raw, notes)
    return ResourceObject(
        id_,
        raw,
        read_member(name, pool, said)._replace(
            holder=None if claim is None else claim.holder_identity
        ),
        claim,
        fence=read_natural(last.get("fence", 0)),
        last_holder=read_optional(read_text, last.get("holder")),
        transitions=read_natural(last.get("transitions", 0)),
        grace_seconds=grace,
        came=came,
        joined=read_text(said.get("life", "")),
        last_tickets=tuple(map(read_text, last.get("tickets", ()))),
        entering=read_safe(labels_of(raw).get(ENTERING, "")),
        made=str(notes.get(BY, "")),
        freed=str(notes.get(FREED, "")),
        changed=str(notes.get(CHANGED, "")),
    )


def _read_claim(raw: Json, notes: Mapping[str, Any]) -> Claim | None:
    spec = mapping(raw.get("spec"))
    if CLAIM not in notes:
        return _foreign_claim(raw, spec) if spec.get("holderIdentity") else None
    claim = read_claim(read_json(notes[CLAIM]))
    ended = read_safe(notes[ENDED]) if ENDED in notes else ""
    note, note_by = _read_note(notes, claim.fence)
    ended = ended or ("by hand" if ENDED in notes else "")
    return claim._replace(ended=ended, note=note, note_by=note_by)


def _foreign_claim(raw: Json, spec: Json) -> Claim:
    """Return the claim of another program, from the fields of the API."""
    ttl = spec.get("leaseDurationSeconds")
    renewed = spec.get("renewTime") or spec.get("acquireTime")
    made = mapping(raw.get("metadata")).get("creationTimestamp")
    since = spec.get("acquireTime") or renewed or made
    acquired = 0.0 if since is None else parse_time(since)
    when = acquired if renewed is None else parse_time(renewed)
    return Claim(
        claim_key="",
        ticket="",
        place=0,
        grant=0,
        fence=0,
        holder_identity=read_safe(spec["holderIdentity"]),
        acquire_time=acquired,
        renew_time=when,
        renewed=str(renewed),
        ttl_seconds=None if ttl is None else read_positive(ttl),
        transitions=read_natural(spec.get("leaseTransitions") or 0),
    )


def _read_note(notes: Mapping[str, Any], fence: int) -> tuple[str | None, str]:
    """What is noted at this claim, and not at one before it; and the word of its writer."""
    if NOTE not in notes:
        return None, ""
    record = read_json(notes[NOTE])
    if record["fence"] != fence:
        return None, ""
    return read_note(record["text"]), str(record.get("by", ""))


def _read_ticket(id_: Identity, raw: Json) -> TicketObject:
    notes = annotations_of(raw)
    if not id_.name.startswith(TICKET_PREFIX):
        raise Malformed("its name isn't that of a ticket")
    record = read_json(notes[TICKET])
    spec = mapping(raw.get("spec"))
    # Until the first renewal writes it down; after that whoever edits it makes it no better.
    place = min(id_.version, read_natural(notes[PLACE])) if PLACE in notes else id_.version
    return read_ticket(
        id_,
        raw,
        _type_in(raw, notes),
        record,
        place=place,
        is_parked=PARKED in notes,
        renewed=str(spec.get("renewTime")),
        counts_as=notes.get(COUNTS_AS),
        since=spec["acquireTime"],
    )


def _read_pool(id_: Identity, raw: Json) -> PoolObject:
    notes = annotations_of(raw)
    pool_type = _type_in(raw, notes)
    if id_.name != object_of_pool(pool_type):
        raise Malformed(f"its annotations are those of pool {pool_type}")
    settings = read_settings(mapping(read_json(notes[SETTINGS])))
    level, last_grant = read_json(notes.get(PACE, '[0, ""]'))
    state, word = read_json(notes.get(STATE, '["open", ""]'))
    epoch, floor = _read_epoch(notes)
    return PoolObject(
        id_,
        raw,
        pool_type,
        settings,
        read_state(state),
        read_text(word),
        level=read_not_negative(level),
        last_grant=read_text(last_grant),
        changed=read_text(notes.get(CHANGED, "")),
        coming=COMING in notes,
        epoch=epoch,
        floor=floor,
        made=str(notes.get(BY, "")),
    )


def _read_epoch(notes: Json) -> tuple[str, int]:
    epoch, floor = read_json(notes.get(EPOCH, '["", 0]'))
    return read_text(epoch), read_natural(floor)


def _read_belonging(id_: Identity, raw: Json) -> BelongingObject:
    if id_.name != OBJECT_OF_BELONGING:
        raise Malformed("its name doesn't match its content")
    notes = annotations_of(raw)
    pools, pending = Pools(frozenset()), None
    if BELONGING in notes or EXPECT not in notes:
        pools, pending = read_belonging(read_json(notes[BELONGING]))
    if EXPECT in notes:
        pending = pools if pending is None else pending
        expected = read_patterns(read_json(notes[EXPECT]))
        pending = pending._replace(patterns={**pending.patterns, **expected})
    epoch, floor = _read_epoch(notes)
    return BelongingObject(id_, raw, pools, pending, floor, epoch, made=str(notes.get(BY, "")))


def _read_values(id_: Identity, raw: Json) -> ValuesObject:
    notes = annotations_of(raw)
    space, _, subject = read_text(notes[SUBJECT]).partition("/")
    if id_.name != object_of_values(space, subject):
        raise Malformed(f"its annotations are those of {space}/{subject}")
    record = read_json(notes[KEPT])
    said = {kind: _read_said(notes, kind, each) for kind, each in record["said"].items()}
    contents = {word: read_until(until) for word, until in record["contents"].items()}
    return ValuesObject(id_, raw, space, subject, said, contents, made=str(notes.get(BY, "")))


def _read_content(id_: Identity, raw: Json) -> ContentObject:
    notes = annotations_of(raw)
    key = read_text(notes[SUBJECT])
    parts = parts_of(key)
    if parts.kind != CONTENT or id_.name != object_of_content(
        parts.space, parts.subject, parts.word
    ):
        raise Malformed(f"its annotations are those of {key}")
    return ContentObject(id_, raw, key, _read_said(notes, CONTENT, read_json(notes[KEPT])))


def _read_said(notes: Mapping[str, Any], kind: str, record: Any) -> Said:
    text = read_text(notes[annotation_of(kind)])
    is_text = not mapping(record).get("base64")
    content = text.encode() if is_text else b64decode(text, validate=True)
    return read_said(content, record)


def annotation_of(kind: str) -> str:
    """What keeps what is said of a subject."""
    return VALUE_DOMAIN + kind.replace("/", ".")


_READ: dict[str, Callable[[Identity, Json], Found]] = {
    "resource": _read_resource,
    "ticket": _read_ticket,
    "pool": _read_pool,
    "belonging": _read_belonging,
    "values": _read_values,
    "content": _read_content,
}


def _type_in(raw: Json, notes: Mapping[str, Any]) -> str:
    """The type of its pool, if it is found as one of that."""
    pool_type = read_name(notes[TYPE])
    if labels_of(raw).get(POOL) != label_of_type(pool_type):
        raise Malformed(f"its label isn't that of pool {pool_type}")
    return pool_type
