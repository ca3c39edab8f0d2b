"""All events of a bucket that nobody writes to any more, as one value: a pair of encode and parse.

Column by column, so that reading many takes little: each column is checked as a whole before it is
believed. What isn't an event as this version knows them stays as it was written.
"""

from __future__ import annotations

import contextlib
import json
import operator
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from leasectl.engines.etcd.events.records import parse_event, read_kind
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.key_values import LONGEST_SHOWN, read_time, safe_text, unreadable
from leasectl.errors import CorruptState
from leasectl.state.event import Event, number_of
from leasectl.text.fields import MALFORMED, read_name, read_text
from leasectl.typed.hints import Any, Callable

# So large is none that we write, unpacked.
_LONGEST_BYTES = 64 << 20
_DEFAULTS = Event._field_defaults


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
        CorruptState: Nobody of ours has written it so.
    """
    try:
        record = json.loads(_unpacked(kv.value), parse_constant=_refuse)
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
        raise ValueError("a pack has no end")
    return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


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
            raise ValueError("a column is longer than another")
        columns.append(_CHECKS[field](column) if column else column)
    return list(map(Event._make, zip(*columns)))


def _read_numbers(column: list[Any]) -> list[Any]:
    """Those of events, in their order."""
    if not all(map(operator.le, _read_ints(column), column[1:])):
        raise ValueError("events are in no order")
    return column


def _read_ints(column: list[Any]) -> list[Any]:
    if set(map(type, column)) != {int}:
        raise TypeError("a number is none")
    return column


def _read_times(column: list[Any]) -> list[Any]:
    if not set(map(type, column)) <= {int, float}:
        raise TypeError("a time is none")
    read_time(min(column))
    read_time(max(column))
    return column


def _read_optional_times(column: list[Any]) -> list[Any]:
    known = [value for value in column if value is not None]
    if known:
        _read_times(known)
    return column


def _read_each(read: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Reads a column in which few values come again and again."""

    def read_all(column: list[Any]) -> list[Any]:
        for value in set(column):
            read(value)
        return column

    return read_all


def _read_names(column: list[Any]) -> list[Any]:
    for name in set(chain.from_iterable(column)):
        read_name(name)
    return list(map(tuple, column))


def _read_fences(column: list[Any]) -> list[Any]:
    if not set(map(type, chain.from_iterable(column))) <= {int}:
        raise TypeError("a fence is none")
    return list(map(tuple, column))


def _read_texts(column: list[Any]) -> list[Any]:
    if "".join(column).isprintable() and max(map(len, column)) <= LONGEST_SHOWN:
        return column
    return list(map(safe_text, column))


_CHECKS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "number": _read_numbers,
    "time": _read_times,
    "kind": _read_each(read_kind),
    "type": _read_each(read_name),
    "names": _read_names,
    "fences": _read_fences,
    "handle": _read_texts,
    "acquisition": _read_ints,
    "holder_identity": _read_texts,
    "count": _read_ints,
    "priority": _read_ints,
    "ticket": _read_ints,
    "grant": _read_ints,
    "wait_seconds": _read_optional_times,
    "hold_seconds": _read_optional_times,
    "by": _read_texts,
    "reason": _read_texts,
}
