"""Encode and parse packed buckets; pack the events of an old bucket into one value; read contents.

`Content` is what a bucket had at one revision. One request reads several packed buckets. Of events
from a number on, an unpacked bucket gives only those, and a pack gives all that it has.
"""

from __future__ import annotations

import contextlib
import json
import operator
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from leasectl.engines.cluster.records import LONGEST_SHOWN, read_event_kind, safe_text
from leasectl.engines.etcd.answers import EtcdLeaseGone
from leasectl.engines.etcd.events import (
    Bucket,
    packed_bucket,
    packed_numbers,
    parse_event,
    read_time,
    readable_buckets,
)
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import (
    KeyValue,
    count,
    delete_all,
    end_of,
    none_below,
    put,
    read_all,
    read_created_after,
    read_from,
    unchanged,
    unreadable,
    unwritten_since,
)
from leasectl.errors import CorruptState, LeaseError
from leasectl.state.event import Event, number_of
from leasectl.system.clock import Clock
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_name,
    read_text,
    read_word,
    refuse_constant,
)

# So large is none that we write, unpacked.
_LONGEST_BYTES = 64 << 20
_DEFAULTS = Event._field_defaults
# Of one bucket, at most. What comes of more may be too long for one request (1.5 MiB); only before
# there were packs did buckets get that large, and only with LEASECTL_KEEP_EVENTS above 320,000.
_MOST_EVENTS = 10_000
_LONGEST_PACK = 1 << 20
# It is nobody's business that waits: where etcd takes its time, another process does it.
_SECONDS = 1.0
# A megabyte or so.
_MOST_PACKS = 16


def encode_pack(items: Iterable[KeyValue]) -> str:
    """Write the keys of a bucket's events as one value; `parse_pack` reads it back."""
    events, others = [], []
    for kv in items:
        event = _known(kv)
        if event is None:
            pool_type, _, token = kv.key.rpartition("/")
            others.append([pool_type.rpartition("/")[2], token, kv.create_revision, kv.value])
        else:
            events.append(event)
    columns = zip(Event._fields, zip(*sorted(events, key=number_of)))
    record: dict[str, Any] = {
        field: column
        for field, column in columns
        if field not in _DEFAULTS or any(value != _DEFAULTS[field] for value in column)
    }
    text = json.dumps({"events": record, "others": others}, separators=(",", ":"))
    return b64encode(zlib.compress(text.encode())).decode()


def parse_pack(kv: KeyValue) -> list[Event]:
    """Read a key below ``packed/``; its events, in their order.

    Raises:
        CorruptState: It isn't in leasectl's format.
    """
    try:
        record = json.loads(_unpacked(kv.value), parse_constant=refuse_constant)
        events = _events(record["events"])
        others = list(_others(record["others"]))
    except (*MALFORMED, zlib.error) as error:
        raise unreadable(kv, error) from error
    return sorted([*events, *others], key=number_of) if others else events


def _known(kv: KeyValue) -> Event | None:
    """The event that a key stands for, if there is no more to it than this version reads."""
    with contextlib.suppress(CorruptState):
        event = parse_event(kv)
        if json.loads(kv.value).keys() <= set(Event._fields):
            return event
    return None


def _others(written: Sequence[Sequence[Any]]) -> Iterator[Event]:
    """What was left as it was written, as far as this version can read it."""
    for pool_type, token, revision, value in written:
        key = f"{read_text(pool_type)}/{read_text(token)}"
        with contextlib.suppress(CorruptState):
            yield parse_event(KeyValue(f"/{key}", read_text(value), int(revision), int(revision)))


def _unpacked(value: str) -> bytes:
    inflating = zlib.decompressobj()
    text = inflating.decompress(b64decode(value, validate=True), _LONGEST_BYTES)
    if not inflating.eof:
        raise Malformed("packed events are cut off")
    return text


def _events(record: dict[str, list[Any]]) -> list[Event]:
    """Events of their columns."""
    if not record:
        return []
    length = len(record["number"])
    columns: list[Iterable[Any]] = []
    for field in Event._fields:
        column = record.get(field)
        if column is None:
            columns.append(repeat(_DEFAULTS[field], length))
            continue
        if len(column) != length:
            raise Malformed("columns of events have different lengths")
        columns.append(_read_column(field, column))
    if not all(map(operator.le, record["number"], record["number"][1:])):
        raise Malformed("events are out of order")
    return list(map(Event._make, zip(*columns)))


def _read_column(field: str, column: list[Any]) -> list[Any]:
    """Check the values of a field together: to check a hundred thousand one by one takes long."""
    values = set(chain.from_iterable(column) if field in _LISTS else column)
    if field in _OPTIONAL:
        values.discard(None)
    if field in _TYPES:
        if not set(map(type, values)) <= _TYPES[field]:
            raise Malformed("a field isn't a number")
        if _TYPES[field] is _SECONDS_TYPES and values:
            read_time(min(values))
            read_time(max(values))
    elif field in _READ:
        for value in values:  # of which few come again and again
            _READ[field](value)
    elif not "".join(column).isprintable() or max(map(len, column)) > LONGEST_SHOWN:
        return list(map(safe_text, column))
    return list(map(tuple, column)) if field in _LISTS else column


_LISTS = ("names", "fences")
_OPTIONAL = ("wait_seconds", "hold_seconds")
_SECONDS_TYPES = frozenset({int, float})
_INTEGERS = ("number", "fences", "acquisition", "count", "priority", "ticket", "grant")
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(_INTEGERS, frozenset({int})),
    **dict.fromkeys(("time", *_OPTIONAL), _SECONDS_TYPES),
}
_READ: dict[str, Callable[[Any], object]] = {
    "kind": read_event_kind,
    "type": read_name,
    "names": read_word,
}


def pack_a_bucket(
    gateway: Gateway,
    *,
    clock: Clock,
    choose: Callable[[Sequence[Bucket]], Bucket] = secrets.choice,
) -> None:
    """Pack one of the buckets that can be packed, if there is any and etcd is quick to answer.

    Args:
        gateway: The keys of the pools.
        clock: Where times come from.
        choose: Chooses one. By chance, so that several who do this at once seldom choose the same,
            and none that can't be packed keeps others from it.
    """
    until = clock.elapsed() + _SECONDS
    with contextlib.suppress(LeaseError, EtcdLeaseGone), gateway.limited(until):
        found = _unpacked_buckets(gateway)
        if found and clock.elapsed() < until:
            bucket = choose(found)
            events = gateway.keys.events_in(bucket.name)
            (number,) = gateway.read(count(events)).answers
            if number.count <= _MOST_EVENTS and clock.elapsed() < until:
                _pack(gateway, bucket, events)


def _unpacked_buckets(gateway: Gateway) -> list[Bucket]:
    """The buckets that are written to no more, which are all but the last, and aren't packed."""
    listed, packs = gateway.read(
        read_all(gateway.keys.buckets), read_all(gateway.keys.packs, keys_only=True)
    ).answers
    packed = packed_numbers(packs)
    return [
        bucket
        for bucket in readable_buckets(listed)[:-1]
        if bucket.is_usable and bucket.name not in packed
    ]


def _pack(gateway: Gateway, bucket: Bucket, events: str) -> None:
    """Replace a bucket's keys by one value, which is empty if there are none."""
    keys, outcome = gateway.keys, gateway.read(read_all(events))
    items = outcome.answers[0].items
    pack = encode_pack(items)
    if len(pack) > _LONGEST_PACK:
        return
    gateway.commit(
        [
            none_below(keys.packs_of(bucket.name)),
            unwritten_since(events, outcome.revision),
            unchanged(keys.bucket(bucket.name), bucket.mod_revision),
        ],
        [
            put(keys.pack(bucket.name, len(items)), pack, etcd_lease_id=bucket.etcd_lease_id),
            delete_all(events),
        ],
    )


class Content(NamedTuple):
    """What there was in a bucket.

    Args:
        bucket: Which.
        is_there: It was still there itself; if not, so was nothing in it.
        items: Its events' keys.
        packs: The value in the place of all its events, where it is packed.
    """

    bucket: Bucket
    is_there: bool
    items: Sequence[KeyValue]
    packs: Sequence[KeyValue]

    def events(self) -> list[Event]:
        """Return the events in their order; unreadable ones are left out."""
        return readable_events(self.items, self.packs)


def readable_events(items: Sequence[KeyValue], packs: Sequence[KeyValue]) -> list[Event]:
    """The events that keys of events stand for, and packs, in their order."""
    if items:
        return sorted(chain(_readable(items), *map(_events_of_pack, packs)), key=number_of)
    return list(chain(*map(_events_of_pack, packs)))


def parts(buckets: Sequence[Bucket], packed: Mapping[str, int]) -> Iterator[Sequence[Bucket]]:
    """The same buckets, as many together as are read at once.

    Args:
        buckets: In their order.
        packed: Has the names of those that are packed, as far as is known.
    """
    part: list[Bucket] = []
    for bucket in buckets:
        if part and (len(part) == _MOST_PACKS or not {bucket.name, part[-1].name} <= packed.keys()):
            yield part
            part = []
        part.append(bucket)
    if part:
        yield part


def read_contents(
    gateway: Gateway, part: Sequence[Bucket], *, pool_type: str | None, seen: int
) -> list[Content]:
    """Ask for what is in some buckets.

    Args:
        gateway: The keys of the pools.
        part: As `parts` has it: if they are several, all of them are packed.
        pool_type: Of what isn't packed, the events of that pool will do; None for all.
        seen: Of what isn't packed, those will do that were written after that revision.
    """
    keys, first, last = gateway.keys, part[0].name, part[-1].name
    asked = [
        read_from(keys.bucket(first), end_of(keys.bucket(last)), keys_only=True),
        read_from(keys.packs_of(first), end_of(keys.packs_of(last))),
    ]
    if len(part) == 1:
        prefix = keys.events_in(first, pool_type)
        asked.append(read_created_after(prefix, seen) if seen > 0 else read_all(prefix))
    named, packs, *unpacked = gateway.read(*asked).answers
    there = {kv.key for kv in named.items}
    packs_in: dict[str, list[KeyValue]] = {}
    for kv in packs.items:
        packs_in.setdefault(packed_bucket(kv), []).append(kv)
    return [
        Content(
            bucket,
            keys.bucket(bucket.name) in there,
            unpacked[0].items if unpacked else (),
            packs_in.get(bucket.name, ()),
        )
        for bucket in part
    ]


def _readable(items: Sequence[KeyValue]) -> Iterator[Event]:
    for kv in items:
        with contextlib.suppress(CorruptState):
            yield parse_event(kv)


def _events_of_pack(kv: KeyValue) -> list[Event]:
    with contextlib.suppress(CorruptState):
        return parse_pack(kv)
    return []
