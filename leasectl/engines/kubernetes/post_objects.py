"""Build and parse ``events.k8s.io/v1`` objects.

What one step did is one object, and where it was done to several resources one for each, so that
each tells its own story. The first has an annotation with what `leasectl` reads, as a list; the
others are for people only. Limits are those of the API, which refuses what is longer:
https://github.com/kubernetes/kubernetes, pkg/apis/core/validation/events.go.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, cast

from leasectl.engines.cluster.fields import mapping, safe_text
from leasectl.engines.cluster.objects import Told, stamp
from leasectl.engines.kubernetes.labels import DOMAIN, KIND, POOL, Json
from leasectl.engines.kubernetes.names import label_of_type
from leasectl.engines.kubernetes.reading import annotations_of, identity_of
from leasectl.state.event import Event, EventKind
from leasectl.text.durations import format_seconds
from leasectl.text.naming import as_given
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_json,
    read_name,
    read_number,
    read_optional,
    read_text,
    read_word,
)
from leasectl.text.wording import counted, printable

# The value of the label by which those are found that have something to be read.
EVENT = "event"
# An event's number is that many times its object's resourceVersion, and its place in there.
NUMBERS_PER_VERSION = 1000
_EVENTS = DOMAIN + "events"
_CONTROLLER = "leasectl.dev/leasectl"
_LONGEST_INSTANCE = 128
_LONGEST_NOTE_BYTES = 1000
_LONGEST_NAME = 253
_RANDOM_BYTES = 8
# So many Leases are told of at once, each in an object of its own.
_MOST_ABOUT = 16
# So long is none that we write.
_LONGEST_KIND = 40
_WARNINGS: tuple[EventKind, ...] = ("lost", "work failed")
_BY = {
    "command": "by leasectl release",
    "delay": "at its release time",
    "guard": "as its guard ended",
    "run": "as its run ended",
    "ttl": "as its ttl expired",
    "force": "by force",
    "removal": "as it was taken out of the pool",
    "reclaim": "by a reclaim",
}


def encode_post(post: Told, namespace: str) -> list[dict[str, Any]]:
    """Write what a step did, as objects; `parse_post` reads the first of them back."""
    last = post.events[-1]
    title = post.title or "".join(word.capitalize() for word in last.kind.split())
    rest: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": stamp(last.time),
        "reportingController": _CONTROLLER,
        "reportingInstance": os.uname().nodename[:_LONGEST_INSTANCE] or "-",
        "action": title,
        "reason": title,
        "type": "Warning" if last.kind in _WARNINGS or _is_loss(post) else "Normal",
        "note": _note(last),
    }
    made = []
    for number, each in enumerate(post.about[:_MOST_ABOUT]):
        meta: dict[str, Any] = {"name": _name(each.name), "namespace": namespace}
        if number == 0:
            labels = {KIND: EVENT, POOL: label_of_type(last.type)}
            meta = {**meta, "labels": labels, "annotations": {_EVENTS: _written(post.events)}}
        regarding = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": namespace,
            "name": each.name,
            **({"uid": each.uid} if each.uid else {}),
        }
        made.append({**rest, "metadata": meta, "regarding": regarding})
    return made


def parse_post(raw: Json) -> list[Event]:
    """The events in an object; none in one that nobody of ours has written so."""
    version = identity_of(raw).version * NUMBERS_PER_VERSION
    try:
        records = read_json(annotations_of(raw)[_EVENTS])
        if not isinstance(records, list) or len(records) > NUMBERS_PER_VERSION:
            raise Malformed("events are no list")
        return [_read(mapping(each), version + number) for number, each in enumerate(records)]
    except MALFORMED:
        return []


def _written(events: Sequence[Event]) -> str:
    return json.dumps([_record(each) for each in events], separators=(",", ":"))


def _record(event: Event) -> dict[str, object]:
    """An event without its number, and what is as usual."""
    usual = {**Event._field_defaults, "number": event.number}
    return {
        field: value
        for field, value in event._asdict().items()
        if field not in usual or value != usual[field]
    }


def _read(record: Json, number: int) -> Event:
    get = record.get
    return Event(
        number=number,
        time=read_number(record["time"]),
        kind=_read_kind(record["kind"]),
        type=read_name(record["type"]),
        names=tuple(map(read_word, get("names", ()))),
        fences=tuple(map(int, get("fences", ()))),
        handle=safe_text(read_text(get("handle", ""))),
        acquisition=int(get("acquisition", 0)),
        holder_identity=safe_text(read_text(get("holder_identity", ""))),
        count=int(get("count", 1)),
        priority=int(get("priority", 0)),
        ticket=int(get("ticket", 0)),
        grant=int(get("grant", 0)),
        wait_seconds=read_optional(read_number, get("wait_seconds")),
        hold_seconds=read_optional(read_number, get("hold_seconds")),
        by=safe_text(read_text(get("by", ""))),
        reason=safe_text(read_text(get("reason", ""))),
        build_url=safe_text(read_text(get("build_url", ""))),
    )


def _read_kind(value: object) -> EventKind:
    """A kind, or one that a later version has."""
    kind = read_text(value)
    if not kind.replace(" ", "").isalpha() or not kind.isascii() or len(kind) > _LONGEST_KIND:
        raise Malformed("a kind of event is none")
    return cast("EventKind", kind)


def _name(object_name: str) -> str:
    """What an event is called, as nothing else ever: after its Lease, as all others are."""
    random = os.urandom(_RANDOM_BYTES).hex()
    begin = object_name[: _LONGEST_NAME - len(random) - 1].rstrip(".-")
    return f"{begin}.{random}"


def _is_loss(post: Told) -> bool:
    return any(each.kind == "lost" for each in post.events)


def _note(event: Event) -> str:
    """What happened, for people; of a resource of several it is the same."""
    who = f"{event.holder_identity or 'somebody'}"
    reason = f": {event.reason}" if event.reason else ""
    names = ", ".join(map(as_given, event.names))
    if event.kind == "queued":
        text = f"{who} waits for {names or counted(event.count, 'resource')} of {event.type}"
    elif event.kind == "granted":
        text = f"{names} of {event.type} to {who}{_after(event.wait_seconds)}"
    elif event.kind == "gave up":
        text = f"{who} waits no more{_after(event.wait_seconds)}{reason}"
    elif event.kind in ("released", "lost"):
        by = _BY.get(event.by, f"by {event.by}")
        text = f"{names} of {who}{_after(event.hold_seconds)} {by}{reason}"
    else:
        text = f"{names or event.type} by {who}{reason}"
    return _short(printable(text, longest=_LONGEST_NOTE_BYTES))


def _after(seconds: float | None) -> str:
    return "" if seconds is None else f" after {format_seconds(max(0.0, seconds))}"


def _short(text: str) -> str:
    """A text with no more bytes than a note may have."""
    encoded = text.encode(errors="replace")
    return encoded[:_LONGEST_NOTE_BYTES].decode(errors="ignore")
