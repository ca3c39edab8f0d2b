"""Read the contents of buckets at one revision.

Several that are packed come with one request. Of what is to be read from a number on, a bucket that
isn't packed gives what it has from there on, and a pack all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from leasectl.engines.etcd.events.buckets import Bucket, packed_bucket
from leasectl.engines.etcd.events.packing import parse_pack
from leasectl.engines.etcd.events.records import parse_event
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    end_of,
    read_all,
    read_created_after,
    read_from,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.errors import CorruptState
from leasectl.state.event import Event, number_of

# A megabyte or so.
_MOST_PACKS = 16


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
        """The events, in their order; what somebody else has written there is left out."""
        return readable_events(self.items, self.packs)


def readable_events(items: Sequence[KeyValue], packs: Sequence[KeyValue]) -> list[Event]:
    """The events that keys of events stand for, and packs, in their order."""
    if items:
        return sorted(chain(_readable(items), *map(_unpacked, packs)), key=number_of)
    return list(chain(*map(_unpacked, packs)))


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
    gateway: Gateway, keys: Keys, part: Sequence[Bucket], *, pool_type: str | None, seen: int
) -> list[Content]:
    """Ask for what is in some buckets.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        part: As `parts` has it: if they are several, all of them are packed.
        pool_type: Of what isn't packed, the events of that pool will do; None for all.
        seen: Of what isn't packed, those will do that were written after that revision.
    """
    first, last = part[0].name, part[-1].name
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


def _unpacked(kv: KeyValue) -> list[Event]:
    with contextlib.suppress(CorruptState):
        return parse_pack(kv)
    return []
