"""Encode and decode objects: the value of a key and of its copies.

A write can't know its own revision. So readers take from the key's revisions what depends on it: a
new claim's fence, and the number of a claim made without a ticket; the next write of the object
has them in its value. The number of a ticket is the revision at which it was put.

All values are checked, since any client of etcd may write anything. Free text is never refused but
made safe to show: which characters are printable depends on the version of Python, and a label
written by a newer one must not make a pool unreadable for others.

Find and correct copies that aren't as their objects are
--------------------------------------------------------

A write changes an object and its copies together. Only other programs can make them differ: a
manual edit, or the restore of some keys from a backup.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

from leasectl.engines.cluster.claims import FENCES_PER_VERSION
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
    ValuesObject,
    stamp,
)
from leasectl.engines.cluster.records import (
    Record,
    belonging_record,
    claim_record,
    member_record,
    read_belonging,
    read_claim,
    read_grace,
    read_member,
    read_natural,
    read_not_negative,
    read_note,
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
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.keys import BELONGING, POOL, RESOURCE, TICKET
from leasectl.engines.etcd.requests import (
    KeyValue,
    delete,
    put,
    read_all,
    revision_in,
    unchanged,
    unreadable,
)
from leasectl.text.properties import (
    MALFORMED,
    read_name,
    read_optional,
    read_text,
)

_TO_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_FROM_JSON = json.JSONDecoder().decode


def fence_of(revision: int, index: int, least: int = 0) -> int:
    """Return the fence of a resource that was claimed at a revision, the index-th of its claim.

    Args:
        revision: Of etcd.
        index: Of the resource among those that were claimed with it.
        least: It is no smaller than that.
    """
    return max(revision * FENCES_PER_VERSION + index, least)


# Encoding


def encode(found: Found, *, new_claim: int | None = None) -> str:
    """Write an object.

    Args:
        found: It.
        new_claim: The number of the resource among those that are claimed in this write; None for
            one that isn't.
    """
    record: dict[str, Any] = {"is": found.id.name}
    if isinstance(found, ResourceObject):
        record.update(_resource(found, new_claim))
    elif isinstance(found, TicketObject):
        record.update(_ticket(found))
    elif isinstance(found, PoolObject):
        record.update(_pool(found))
    elif isinstance(found, BelongingObject):
        record.update(belonging_record(found.pools, found.pending))
        record["made"] = found.made
    elif isinstance(found, ValuesObject):
        said = {kind: _said(each) for kind, each in found.said.items()}
        untils = {word: until_record(until) for word, until in found.contents.items()}
        record.update(made=found.made, said=said, contents=untils)
    elif isinstance(found, ContentObject):
        record.update(key=found.key, said=_said(found.said))
    return _TO_JSON(record)


def _resource(found: ResourceObject, new_claim: int | None) -> dict[str, Any]:
    member, claim = member_record(found), found.claim
    last = {"holder": found.last_holder, "times": found.transitions, "fence": found.fence}
    record: dict[str, Any] = {"uid": found.id.uid, "pool": found.member.pool, "made": found.made}
    if member:
        record["member"] = member
    if claim is not None:
        record["claim"] = _claim(claim, new_claim)
        del last["fence"]  # which is the claim's
    if claim is None and found.last_tickets:
        record["tickets"] = found.last_tickets
    if found.fence or found.last_holder is not None:
        record["last"] = last
    for word in ("freed", "changed"):
        if getattr(found, word):
            record[word] = getattr(found, word)
    return record


def _claim(claim: Claim, new_claim: int | None) -> dict[str, Any]:
    record = claim_record(claim)
    if new_claim is not None:
        record["index"], record["least"] = new_claim, record.pop("fence")
        if not claim.place:
            del record["place"]
    if claim.life:
        record["life"] = claim.life
    if claim.ended:
        record["ended"] = claim.ended
    if claim.note is not None:
        record["note"] = (claim.note, claim.note_by)
    return record


def _ticket(found: TicketObject) -> dict[str, Any]:
    said = ticket_record(found)
    record = {
        **{word: value for word, value in said.items() if value or word == "count"},
        "since": stamp(found.since),
        "renewed": found.renewed,
        "life": found.life,
    }
    if found.counts_as != found.priority:
        record["counts_as"] = found.counts_as
    if found.is_parked:
        record["parked"] = True
    return record


def _pool(found: PoolObject) -> dict[str, Any]:
    record: dict[str, Any] = {
        "uid": found.id.uid,
        "made": found.made,
        "settings": settings_record(found.settings),
    }
    if found.state != "open":
        record["state"] = (found.state, found.word)
    if found.last_grant:
        record["pace"] = (found.level, found.last_grant)
    if found.changed:
        record["changed"] = found.changed
    if found.coming:
        record["coming"] = True
    return record


def _said(said: Said) -> dict[str, Any]:
    return {"content": b64encode(said.content).decode(), **said_record(said)}


# Decoding


def decode(kv: KeyValue) -> Found:
    """Read the value of an object's key, or of a copy.

    Raises:
        CorruptState: It isn't in leasectl's format.
    """
    try:
        record = _FROM_JSON(kv.value)
        name = record["is"]
        if name.startswith(RESOURCE):
            return _read_resource(kv, name, record)
        if name.startswith(TICKET):
            return _read_ticket(kv, name, record)
        if name.startswith(POOL):
            return _read_pool(kv, name, record)
        id_ = Identity(name, "", kv.mod_revision)
        if name == BELONGING:
            pools, pending = read_belonging(record)
            return BelongingObject(id_, None, pools, pending, made=read_text(record["made"]))
        if name.startswith("values/"):
            _, space, subject = name.split("/", 2)
            said = {read_text(kind): _read_said(each) for kind, each in record["said"].items()}
            contents = {
                read_text(word): read_until(each) for word, each in record["contents"].items()
            }
            made = read_text(record["made"])
            return ValuesObject(id_, None, space, subject, said, contents, made=made)
        return ContentObject(id_, None, read_text(record["key"]), _read_said(record["said"]))
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def _read_resource(kv: KeyValue, name: str, record: Record) -> ResourceObject:
    said, last = record.get("member", {}), record.get("last", {})
    pool = read_optional(read_name, record["pool"])
    claim = _read_claim(kv, record["claim"]) if "claim" in record else None
    member = read_member(name[len(RESOURCE) :], pool, said)
    if claim is not None:
        member = member._replace(holder=claim.holder_identity)
    grace, came = read_grace(said) if said else (None, "")
    return ResourceObject(
        Identity(name, read_text(record["uid"]), kv.mod_revision),
        kv.value,
        member,
        claim,
        fence=read_natural(last.get("fence", 0)) if claim is None else claim.fence,
        last_holder=read_optional(read_safe, last.get("holder")),
        transitions=read_natural(last.get("times", 0)),
        grace_seconds=grace,
        came=came,
        joined=read_text(said.get("life", "")),
        last_tickets=tuple(map(read_text, record.get("tickets", ()))),
        made=read_text(record["made"]),
        freed=read_text(record.get("freed", "")),
        changed=read_text(record.get("changed", "")),
    )


def _read_claim(kv: KeyValue, record: dict[str, Any]) -> Claim:
    if "fence" not in record:
        record["fence"] = fence_of(
            kv.mod_revision, read_natural(record["index"]), read_natural(record["least"])
        )
    record.setdefault("place", kv.mod_revision)
    note, note_by = record.get("note", (None, ""))
    return read_claim(record)._replace(
        life=read_text(record.get("life", "")),
        ended=read_safe(record.get("ended", "")),
        note=read_optional(read_note, note),
        note_by=read_text(note_by),
    )


def _read_ticket(kv: KeyValue, name: str, record: Record) -> TicketObject:
    _, pool_type, id_ = name.split("/")
    return read_ticket(
        Identity(name, id_, kv.mod_revision),
        None,
        read_name(pool_type),
        {"where": (), "priority": 0, "labels": (), **record},
        place=kv.create_revision,
        is_parked="parked" in record,
        renewed=read_text(record["renewed"]),
        counts_as=record.get("counts_as"),
        since=record["since"],
    )._replace(life=read_text(record["life"]))


def _read_pool(kv: KeyValue, name: str, record: Record) -> PoolObject:
    state, word = record.get("state", ("open", ""))
    level, last_grant = record.get("pace", (0.0, ""))
    return PoolObject(
        Identity(name, read_text(record["uid"]), kv.mod_revision),
        None,
        read_name(name[len(POOL) :]),
        read_settings(record["settings"]),
        read_state(state),
        read_text(word),
        level=read_not_negative(level),
        last_grant=read_text(last_grant),
        changed=read_text(record.get("changed", "")),
        coming="coming" in record,
        made=read_text(record["made"]),
    )


def _read_said(record: Record) -> Said:
    return read_said(b64decode(read_text(record["content"]), validate=True), record)


def find_astray(gateway: Gateway) -> list[str]:
    """Return the keys of copies that are missing, or aren't as their object is, or of none."""
    return sorted(_read(gateway))


def mend_astray(gateway: Gateway) -> list[str]:
    """Write these as they are to be; return the keys of those that are."""
    mended = []
    for key, (there, value, owner) in sorted(_read(gateway).items()):
        guards = [unchanged(key, revision_in(there))]
        if owner is not None:
            guards.append(unchanged(owner.key, owner.mod_revision))
        write = delete(key) if value is None else put(key, value)
        if gateway.commit(guards, [write]).succeeded:
            mended.append(key)
    return mended


class _Astray(NamedTuple):
    """A copy that isn't as it is to be.

    Args:
        there: As it is; None if it is missing.
        value: As it is to be; None for one that is to go.
        owner: The object that it is of; None if it is of none.
    """

    there: KeyValue | None
    value: str | None
    owner: KeyValue | None


def _read(gateway: Gateway) -> dict[str, _Astray]:
    keys = gateway.keys
    asked = map(read_all, (keys.pools, *keys.all_copies))
    pools, pointers, *copies = gateway.read(*asked).answers
    # Of these, the pointer to a name in no pool is empty; among copies, what lives is.
    there = {kv.key: kv for kv in pointers.items}
    there.update((kv.key, kv) for found in copies for kv in found.items if kv.value)
    expected: dict[str, tuple[str, KeyValue]] = {}
    for kv in pools.items:
        if kv.value[:1] != "{":
            continue
        found = decode(kv)
        expected.update((key, (kv.value, kv)) for key in keys.copies(found))
        if isinstance(found, ResourceObject):
            expected[keys.at(found.id.name)] = found.member.pool or "", kv
    astray = {}
    for key in there.keys() | expected.keys():
        is_there, (value, owner) = there.get(key), expected.get(key, (None, None))
        if is_there is None or is_there.value != value:
            astray[key] = _Astray(is_there, value, owner)
    return astray
