"""Encode and parse events.

What a transaction can't know before it is made a reader takes from the event's key: its number and
a new ticket's are of the revision at which it was made, and so are the fences of a grant.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from leasectl.engines.etcd.encoding import fence_of
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.key_values import read_time, safe_text, unreadable
from leasectl.state.event import Event, EventKind
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_name,
    read_optional,
    read_text,
    read_word,
)

_DECODER = json.JSONDecoder()  # asked as it is, for one that is read a hundred thousand times
_INDEX_DIGITS = 2
# More than events of one transaction.
NUMBERS_PER_REVISION = 1000
# They say nothing of a ticket that is of their own revision.
_OF_A_TICKET = ("queued", "granted")
_DECIMALS = 4  # of a second
# So long is none that we write, and a terminal has room for it.
_LONGEST_KIND = 40


def encode_event(event: Event) -> str:
    """Write an event, without what its key says; `parse_event` reads it back."""
    usual = {**Event._field_defaults, "number": event.number, "type": event.type}
    record = {
        field: round(value, _DECIMALS) if isinstance(value, float) else value
        for field, value in event._asdict().items()
        if field not in usual or value != usual[field]
    }
    return json.dumps(record, separators=(",", ":"))


def parse_event(kv: KeyValue) -> Event:
    """Read a key below ``event/``.

    Raises:
        CorruptState: Nobody of ours has written it so.
    """
    try:
        record, end = _DECODER.raw_decode(kv.value)
        if end != len(kv.value):
            raise Malformed("an event is more than that")
        *_, pool_type, token = kv.key.split("/")
        get = record.get
        kind = read_kind(record["kind"])
        names = tuple(map(read_word, get("names", ())))
        return Event(
            number=_number_at(kv.create_revision, token),
            time=read_time(record["time"]),
            kind=kind,
            type=read_name(pool_type),
            names=names,
            fences=_fences(kv, kind, tuple(map(int, get("fences", ()))), names),
            handle=safe_text(read_text(get("handle", ""))),
            acquisition=int(get("acquisition", 0)),
            holder_identity=safe_text(read_text(get("holder_identity", ""))),
            count=int(get("count", 1)),
            priority=int(get("priority", 0)),
            ticket=int(get("ticket", kv.create_revision if kind in _OF_A_TICKET else 0)),
            grant=int(get("grant", 0)),
            wait_seconds=read_optional(read_time, get("wait_seconds")),
            hold_seconds=read_optional(read_time, get("hold_seconds")),
            by=safe_text(read_text(get("by", ""))),
            reason=safe_text(read_text(get("reason", ""))),
            build_url=safe_text(read_text(get("build_url", ""))),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def event_token(token: str, index: int) -> str:
    """The last part of an event's key.

    Args:
        token: Of its transaction, hexadecimal.
        index: Of the event among those of the transaction.
    """
    return f"{token}{index:0{_INDEX_DIGITS}x}"


def revision_before(number: int) -> int:
    """The last revision of etcd at which all events have that number at most, or a smaller one."""
    return number // NUMBERS_PER_REVISION - 1


def last_number_at(revision: int) -> int:
    """The largest number that an event of that revision of etcd can have."""
    return (revision + 1) * NUMBERS_PER_REVISION - 1


def read_kind(value: object) -> EventKind:
    """A kind, or one that a later version has."""
    kind = read_text(value)
    if not kind.replace(" ", "").isalpha() or not kind.isascii() or len(kind) > _LONGEST_KIND:
        raise Malformed("a kind of event is none")
    return cast(EventKind, kind)


def _fences(kv: KeyValue, kind: str, said: Sequence[int], names: Sequence[Any]) -> tuple[int, ...]:
    """Those of an event; of a grant it says how large they are at least."""
    if kind != "granted":
        return tuple(said)
    least = (*said, *[0] * len(names))
    return tuple(fence_of(kv.create_revision, n, least[n]) for n in range(len(names)))


def _number_at(revision: int, token: str) -> int:
    """The number of an event with that token: grows with etcd's revision."""
    return revision * NUMBERS_PER_REVISION + int(read_name(token)[-_INDEX_DIGITS:], 16)
