"""Events in etcd that mean nothing, for tests of how they are kept."""

from __future__ import annotations

import itertools
from operator import itemgetter

from leasectl.engines.etcd.events import EtcdEvents, packed_numbers, parse_bucket
from leasectl.engines.etcd.packing import pack_a_bucket
from leasectl.engines.etcd.requests import absent, put, read_all
from leasectl.state.event import Event, EventKind, Kept
from leasectl.system.clock import Clock
from tests.kit.etcd.access import Access
from tests.kit.support import ManualClock

SMALLEST = 16  # events in a bucket


class Writer:
    """Writes events of nothing but a number, and looks each time whether a bucket is full.

    Args:
        access: Where.
        kept: Which are kept.
        first: The number of the first.
    """

    def __init__(self, access: Access, kept: Kept | None = None, *, first: int = 0) -> None:
        self.time = ManualClock()
        words = itertools.count(first)
        self._events = EtcdEvents(
            access.gateway,
            clock=self.time.clock,
            kept=kept,
            draw=lambda size: f"{next(words) << 6:0{2 * size}x}",
            pack=lambda: pack_a_bucket(access.gateway, clock=self.time.clock),
        )
        self._keys = access.keys
        self._numbers = itertools.count(first)

    def write(
        self,
        times: int = 1,
        *,
        pool_type: str = "T",
        kind: EventKind = "queued",
        at_once: int = 1,
    ) -> None:
        """Write some, so many in one transaction."""
        numbers = list(itertools.islice(self._numbers, times))
        for start in range(0, times, at_once):
            batch = numbers[start : start + at_once]
            now = self.time.clock.wall()
            events = [Event(0, now, kind, pool_type, reason=str(number)) for number in batch]
            key = f"{self._keys.prefix}test/{batch[0]}"
            assert self._events.commit([absent(key)], [put(key, "")], events=events).succeeded


def told(access: Access, *, after: int = 0) -> list[int]:
    """The numbers that events were written with."""
    return [int(event.reason) for event in access.events.read(after=after)]


def buckets(access: Access) -> list[int]:
    """How many events there are in each bucket, as keys of their own."""
    (found,) = access.gateway.read(read_all(access.keys.buckets)).answers
    names = [parse_bucket(kv).name for kv in found.items]
    return [
        len(access.gateway.read(read_all(access.keys.events_in(name))).answers[0].items)
        for name in names
    ]


def packs(access: Access) -> list[int]:
    """How many events there are in each pack, as their keys say it."""
    (found,) = access.gateway.read(read_all(access.keys.packs, keys_only=True)).answers
    numbers = list(packed_numbers(found).values())
    assert len(numbers) == len(found.items), found.items  # one of each bucket
    return numbers


def pack_all(access: Access) -> None:
    """Pack what can be packed, the oldest first."""
    before = -1
    while len(packs(access)) > before:
        before = len(packs(access))
        pack_a_bucket(access.gateway, clock=Clock(), choose=itemgetter(0))
