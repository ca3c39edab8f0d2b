"""Parse Lease objects, and check them.

Any user who may edit Leases may write anything. An unreadable object is never a crash: such a
resource isn't granted, and such a ticket counts as one that could use any resource until it
expires. `doctor` names both.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

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
)
from leasectl.engines.cluster.records import (
    mapping,
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
)
from leasectl.engines.kubernetes.names import (
    BELONGING,
    BY,
    CHANGED,
    CLAIM,
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
    NAME,
    NOTE,
    OBJECT_OF_BELONGING,
    PACE,
    PARKED,
    PLACE,
    POOL,
    SETTINGS,
    STATE,
    SUBJECT,
    TICKET,
    TICKET_PREFIX,
    TYPE,
    VALUE_DOMAIN,
    Json,
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
