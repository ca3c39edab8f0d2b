"""Events in etcd as they are read: bucket by bucket, whose order is that of the events in them.

Nothing is written to a bucket any more once there is another. So whoever reads them one after the
other has all events in their order, although time goes on meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Callable, NamedTuple

from leasectl.engines.etcd.event_buckets import Bucket, readable_buckets
from leasectl.engines.etcd.event_records import last_number_at, parse_event, revision_before
from leasectl.engines.etcd.gateway.ahead import asked_ahead
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    KeyValue,
    count,
    read,
    read_all,
    read_created_after,
    read_last_created,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.records import revision_of
from leasectl.engines.event_log import EventWatch
from leasectl.errors import CorruptState
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


class EtcdEventLog:
    """The events below one prefix of a cluster, as `EventLog`.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
    """

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway = gateway
        self._keys = keys

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        """As `EventLog.read`; what somebody else has written there is left out.

        Which buckets have none from ``since`` on, or none until ``until``, is told by the dates at
        which they were made, with room for clocks that are wrong by an hour.
        """
        seen = revision_before(after)
        listed = self._gateway.read(read_all(self._keys.buckets()))
        buckets = readable_buckets(listed.answers[0])
        behind_gaps = _behind_gaps(buckets, revision_of(after)) if after and missed else set()
        is_gone = after > 0 and not buckets
        chosen = list(_chosen(buckets, wanted, seen))
        reads = [partial(self._read_bucket, bucket.name, wanted.type, seen) for bucket in chosen]
        for bucket, (found, named) in zip(chosen, asked_ahead(reads)):
            if missed and (is_gone or bucket.name in behind_gaps):
                missed(Missed(None, bucket.made, last_number_at(bucket.create_revision)))
            is_gone = named.first is None
            for event in sorted(_readable(found.items)):
                if event.number > after and wanted.wants(event):
                    yield event
        if missed and is_gone:
            missed(Missed(None, None, last_number_at(listed.revision)))

    def _read_bucket(self, name: str, pool_type: str | None, seen: int) -> Sequence[Found]:
        """Its events, and itself: they may have gone since all buckets were asked for."""
        prefix = self._keys.events_in(name, pool_type)
        asked = read_created_after(prefix, seen) if seen > 0 else read_all(prefix)
        return self._gateway.read(asked, read(self._keys.bucket(name))).answers

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        listed = self._gateway.read(read_all(self._keys.buckets()))
        buckets = list(_chosen(readable_buckets(listed.answers[0]), wanted, 0))[::-1]
        # Those of a pool etcd can tell, all others have to be read.
        is_told = wanted == EventFilter(type=wanted.type)
        at_once = min(number + _SPARE, _PAGE) if is_told else _PAGE
        found = (
            event
            for bucket in buckets[: _LATEST_BUCKETS if only_recent else None]
            for event in self._from_the_end(
                self._keys.events_in(bucket.name, wanted.type), listed.revision, at_once
            )
            if wanted.wants(event)
        )
        return list(islice(found, number))

    def _from_the_end(self, prefix: str, revision: int, at_once: int) -> Iterator[Event]:
        """Events up to a revision, the newest first, read so many at once."""
        while True:
            asked = read_last_created(prefix, before=revision + 1, limit=at_once)
            (found,) = self._gateway.read(asked).answers
            items = found.items
            if len(items) < at_once:
                yield from sorted(_readable(items), reverse=True)
                return
            # Those of one revision are in any order, and of the oldest there may be more.
            revision = items[-1].create_revision
            whole = [kv for kv in items if kv.create_revision > revision]
            yield from sorted(_readable(whole), reverse=True)
            if not whole:
                at_once *= 2

    def last_number(self) -> int:
        listed = self._gateway.read(read_all(self._keys.buckets()))
        for bucket in reversed(readable_buckets(listed.answers[0])):
            prefix = self._keys.events_in(bucket.name)
            (last,) = self._gateway.read(
                read_last_created(prefix, before=listed.revision + 1)
            ).answers
            if last.first is not None:
                seen = last.first.create_revision - 1
                (found,) = self._gateway.read(read_created_after(prefix, seen)).answers
                return max((each.number for each in _readable(found.items)), default=0)
        return 0

    def volume(self) -> Volume:
        """How many there are, and how large."""
        events, buckets = self._keys.events(), self._buckets()
        of_sample = self._keys.events_in(buckets[len(buckets) // 2].name) if buckets else events
        counted, sample = self._gateway.read(
            count(events), read_all(of_sample, limit=_SAMPLE)
        ).answers
        sizes = [len(kv.key.encode()) + len(kv.value.encode()) for kv in sample.items]
        return Volume(counted.count, counted.count * sum(sizes) // max(1, len(sizes)))

    def watch(self) -> EventWatch:
        from leasectl.engines.etcd.waiting.event_watch import EtcdEventWatch

        return EtcdEventWatch(self._gateway, self._keys)

    def _buckets(self) -> list[Bucket]:
        (found,) = self._gateway.read(read_all(self._keys.buckets())).answers
        return readable_buckets(found)


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


def _readable(items: Sequence[KeyValue]) -> Iterator[Event]:
    for kv in items:
        with contextlib.suppress(CorruptState):
            yield parse_event(kv)
