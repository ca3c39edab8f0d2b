"""Read events in order, bucket by bucket.

Nothing is written to a bucket once there is a newer one. So a reader that reads them one after the
other gets all events in their order, although new events are written meanwhile. The keys of a
bucket are packed into one value some time later. A request reads both keys and value, since the
events are in one or the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from leasectl.engines.cluster.objects import Happened, Identity
from leasectl.engines.cluster.watches import Follower, Following
from leasectl.engines.etcd.events import (
    NUMBERS_PER_REVISION,
    Bucket,
    last_number_at,
    packed_numbers,
    readable_buckets,
    revision_before,
)
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.packing import parts, read_contents, readable_events
from leasectl.engines.etcd.requests import (
    Found,
    KeyValue,
    count,
    read_all,
    read_last_created,
)
from leasectl.engines.etcd.watching import EtcdWatch
from leasectl.engines.pool_admin import EventWatch
from leasectl.errors import LeaseError
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed

# What clocks may differ by, of those who write.
_SLACK_SECONDS = 3600.0
_SAMPLE = 100  # events
# For the latest so many buckets are looked at, and so many events read at once: a few more than
# were asked for, as the last of them may not be all of their revision.
_LATEST_BUCKETS = 4
_PAGE, _SPARE = 4096, 16


class Volume(NamedTuple):
    """How much is kept.

    Args:
        number: Of events.
        size_bytes: Of them all, roughly: as if all were like those in a sample.
    """

    number: int
    size_bytes: int


class _Listed(NamedTuple):
    """What there is to read.

    Args:
        revision: At which it was so.
        buckets: The oldest first.
        packed: How many events are packed, by the names of their buckets.
    """

    revision: int
    buckets: list[Bucket]
    packed: dict[str, int]


class EtcdEventLog:
    """The events below one prefix of a cluster, as `EventLog`.

    Args:
        gateway: The keys of the pools.
    """

    remark = ""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._keys = gateway.keys

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        """Implements `EventLog.read`; unreadable keys are left out.

        Buckets before ``since`` or after ``until`` are skipped by the dates at which they were
        made, with room for clocks that are wrong by an hour. Nothing is yielded after a number that
        the store hasn't reached: it was restored from an older copy.
        """
        seen = revision_before(after)
        listed = self._list()
        if after // NUMBERS_PER_REVISION > listed.revision:
            if missed:
                missed(Missed(None, None, last_number_at(listed.revision), is_restored=True))
            return
        behind_gaps = set()
        if after and missed:
            behind_gaps = _behind_gaps(listed.buckets, after // NUMBERS_PER_REVISION)
        is_gone = after > 0 and not listed.buckets
        chosen = list(_chosen(listed.buckets, wanted, seen))
        ask = partial(read_contents, self._gateway, pool_type=wanted.type, seen=max(0, seen))
        for content in chain.from_iterable(map(ask, parts(chosen, listed.packed))):
            bucket = content.bucket
            if missed and (is_gone or bucket.name in behind_gaps):
                missed(Missed(None, bucket.made, last_number_at(bucket.create_revision)))
            is_gone = not content.is_there
            yield from _wanted(content.events(), wanted, after)
        if missed and is_gone:
            missed(Missed(None, None, last_number_at(listed.revision)))

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        listed = self._list()
        buckets = list(_chosen(listed.buckets, wanted, 0))[::-1]
        # Those of a pool etcd can tell, all others have to be read.
        is_told = wanted == EventFilter(type=wanted.type)
        at_once = min(number + _SPARE, _PAGE) if is_told else _PAGE
        found = (
            event
            for bucket in buckets[: _LATEST_BUCKETS if only_recent else None]
            for event in self._from_the_end(bucket, wanted.type, listed.revision, at_once)
            if wanted.wants(event)
        )
        return list(islice(found, number))

    def _from_the_end(
        self, bucket: Bucket, pool_type: str | None, revision: int, at_once: int
    ) -> Iterator[Event]:
        """Events up to a revision, the newest first, read so many at once, or packed.

        Of one pool only, if that is said, as long as they aren't packed.
        """
        prefix = self._keys.events_in(bucket.name, pool_type)
        while True:
            asked = read_last_created(prefix, before=revision + 1, limit=at_once)
            found, packs = self._gateway.read(
                asked, read_all(self._keys.packs_of(bucket.name))
            ).answers
            items = found.items
            if packs.items or len(items) < at_once:
                last = last_number_at(revision)
                events = readable_events(items, packs.items)
                yield from (event for event in reversed(events) if event.number <= last)
                return
            # Those of one revision are in any order, and of the oldest there may be more.
            revision = items[-1].create_revision
            whole = [kv for kv in items if kv.create_revision > revision]
            yield from reversed(readable_events(whole, ()))
            if not whole:
                at_once *= 2

    def last_number(self) -> int:
        listed = self._list()
        for bucket in reversed(listed.buckets):
            newest = self._from_the_end(bucket, None, listed.revision, _SPARE)
            for event in newest:
                return event.number
        return 0

    def volume(self) -> Volume:
        """How many there are, and how large."""
        listed = self._list()
        sampled = self._keys.events
        if listed.buckets and not listed.packed:
            sampled = self._keys.events_in(listed.buckets[len(listed.buckets) // 2].name)
        packs = sorted(listed.packed)
        unpacked, some, pack = self._gateway.read(
            count(self._keys.events),
            read_all(sampled, limit=_SAMPLE),
            read_all(self._keys.packs_of(packs[len(packs) // 2] if packs else "-")),
        ).answers
        packed = sum(listed.packed.values())
        of_pack = sum(packed_numbers(pack).values())
        size = unpacked.count * _size(some) // max(1, len(some.items))
        size += packed * _size(pack) // max(1, of_pack)
        return Volume(unpacked.count + packed, size)

    def watch(self) -> EventWatch:
        return EtcdEventWatch(self._gateway)

    def _list(self) -> _Listed:
        outcome = self._gateway.read(
            read_all(self._keys.buckets), read_all(self._keys.packs, keys_only=True)
        )
        buckets, packs = outcome.answers
        return _Listed(outcome.revision, readable_buckets(buckets), packed_numbers(packs))


class EtcdEventWatch(Follower):
    """Implements `EventWatch`; its thread ends soon after it is closed.

    Args:
        gateway: The keys of the pools.

    Raises:
        LeaseError: It can't be asked where it is.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway
        self._events = gateway.keys.events
        self._opened: set[EtcdWatch] = set()
        self._lock = threading.Lock()
        # Under the lock:
        self._version = gateway.read().revision
        self._first = 0  # the revision of the first event that has come since `clear`; 0: none
        self._following = Following(self._follow, self._begin_anew)
        self._following.start("event-watch")

    def clear(self) -> int:
        self._wakeup.clear()
        with self._lock:
            first, self._first = self._first, 0
        return last_number_at(first - 1) if first else 0

    # The thread

    def _follow(self) -> None:
        watch = EtcdWatch(
            self._gateway, (self._events,), self._version, tell=_come, opened=self._opened
        )
        self._following.take_all(watch, self._take)

    def _take(self, happened: Happened) -> None:
        with self._lock:
            self._version = max(self._version, happened.id.version)
            if happened.what == "there":
                self._first = self._first or happened.id.version
        if happened.what == "there":
            self._wakeup.set()

    def _begin_anew(self) -> None:
        with contextlib.suppress(LeaseError):
            version = self._gateway.read().revision
            with self._lock:
                self._version, self._first = version, 0
            self._wakeup.set()  # something may have happened that no watch tells of


def _come(kv: KeyValue, is_gone: bool) -> Happened:
    return Happened("gone" if is_gone else "there", Identity(kv.key, "", kv.mod_revision))


def _wanted(events: list[Event], wanted: EventFilter, after: int) -> Iterable[Event]:
    """Those that are wanted; all of them for less than it takes to look at each."""
    if events and events[0].number <= after:
        events = [event for event in events if event.number > after]
    return events if wanted == ALL_EVENTS else filter(wanted.wants, events)


def _size(found: Found) -> int:
    return sum(len(kv.key.encode()) + len(kv.value.encode()) for kv in found.items)


def _chosen(buckets: Sequence[Bucket], wanted: EventFilter, seen: int) -> Iterator[Bucket]:
    """Those that may have wanted events of revisions after the one that was seen last."""
    for bucket, following in zip(buckets, (*buckets[1:], None)):
        if following is not None:
            if following.create_revision <= seen + 1:
                continue
            if wanted.since is not None and following.made + _SLACK_SECONDS < wanted.since:
                continue
        if wanted.until is not None and bucket.made - _SLACK_SECONDS > wanted.until:
            continue
        yield bucket


def _behind_gaps(buckets: Sequence[Bucket], reached: int) -> set[str]:
    """The names of those before which there was one that is gone and may not have been read.

    Args:
        buckets: That there are, the oldest first.
        reached: The revision up to which all was read.
    """
    return {
        bucket.name
        for before, bucket in zip((None, *buckets), buckets)
        if bucket.create_revision > reached
        and (before is None or bucket.previous not in ("", before.name))
    }
