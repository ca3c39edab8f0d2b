"""Events and their buckets; write events with what they tell of.

The change counts for more than its events. Where an event can't be written, for want of space or
because it is too large, the change is made without it.

Buckets
-------

The events of a bucket are all on one etcd lease, so that they expire together. Events are written
to the current bucket until it is full or old; then a writer makes the next one. Its name is a
revision of etcd, so names sort in the order in which buckets were made. Each write of an event
guards the key of the current bucket, so all events of a bucket are older than those of the next. A
bucket's etcd lease lasts as long as events are kept. etcd restarts that time when the leader
changes. So a writer that makes a bucket also ends the oldest buckets, if there are too many events
or they are too old by its clock; but only a few at a time, as its clock may be wrong.

Records
-------

What a transaction can't know before it is made a reader takes from the event's key: its number and
a new ticket's are of the revision at which it was made, and so are the fences of a grant.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from leasectl.engines.cluster.records import YEAR_10000, event_record, read_event
from leasectl.engines.etcd.answers import EtcdLeaseGone, InvalidArgument, NoSpace
from leasectl.engines.etcd.encoding import fence_of
from leasectl.engines.etcd.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.requests import (
    Found,
    Json,
    KeyValue,
    Outcome,
    count,
    grouped,
    put,
    read,
    read_all,
    unchanged,
    unreadable,
)
from leasectl.errors import CorruptState, LeaseError
from leasectl.state.event import Event, EventKind, Kept
from leasectl.state.event_rows import is_written
from leasectl.system.afterwards import leave
from leasectl.system.clock import Clock
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_json,
    read_name,
    read_number,
    read_text,
)

# Of what is kept, in time and in number: the more there are, the more exact, and the more often
# somebody has to make one.
_BUCKETS = 32
# Events. What is packed at once is to take a few hundredths of a second.
_SMALLEST, _LARGEST = 16, 1000
_DIGITS = 20  # of a name
_MOST_ENDED_FOR_NUMBER, _MOST_ENDED_FOR_AGE = 8, 2
_DECODER = json.JSONDecoder()  # asked as it is, for one that is read a hundred thousand times
_INDEX_DIGITS = 2
# More than events of one transaction.
NUMBERS_PER_REVISION = 1000
# They say nothing of a ticket that is of their own revision.
_OF_A_TICKET = ("queued", "granted")
_DECIMALS = 4  # of a second
_TOKEN_BYTES = 6
# One transaction of so many looks whether its bucket is full.
_LOOK_EVERY = 64
# With what has just begun somebody goes on who is in a hurry.
_BEGINNINGS: tuple[EventKind, ...] = ("queued", "granted")


class Bucket(NamedTuple):
    """A bucket, as the key says that names it.

    Args:
        name: Its name, which sorts after all before it.
        made: When it was made, wall clock, in seconds.
        kept: For how long its events are kept, and how many.
        etcd_lease_id: What its events are attached to; 0 for what can't be written to.
        create_revision: Of the key: all events in the buckets before are older.
        mod_revision: Of the key.
        previous: The name of the bucket before it; empty for none, and if that isn't known.
    """

    name: str
    made: float
    kept: Kept
    etcd_lease_id: int
    create_revision: int
    mod_revision: int
    previous: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether events can be attached to it."""
        return self.etcd_lease_id != 0

    @property
    def span_seconds(self) -> float:
        """For how long it is written to."""
        return self.kept.seconds / _BUCKETS

    @property
    def size(self) -> int:
        """How many events it takes."""
        return min(max(self.kept.number // _BUCKETS, _SMALLEST), _LARGEST)


def encode_bucket(name: str, made: float, kept: Kept, *, previous: str = "") -> str:
    """Write a bucket; `parse_bucket` reads it back."""
    return json.dumps({"bucket": name, "made": made, **kept._asdict(), "previous": previous})


def parse_bucket(kv: KeyValue) -> Bucket:
    """Read a key below ``bucket/``.

    Raises:
        CorruptState: It isn't in leasectl's format.
    """
    try:
        record = read_json(kv.value)
        name = record["bucket"]
        if not (len(name) == _DIGITS and name.isdecimal() and name.isascii()):
            raise Malformed("a bucket has no name")
        kept = Kept(read_time(record["seconds"]), int(record["number"]))
        return Bucket(
            name,
            read_time(record["made"]),
            kept,
            kv.etcd_lease_id,
            kv.create_revision,
            kv.mod_revision,
            read_text(record.get("previous", "")),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


class EtcdEvents:
    """Writes the events below one prefix of a cluster. Threads may share it.

    The current bucket is read once and remembered. A write that is wrong about it fails by a guard,
    reads the new one, and is tried again.

    Args:
        gateway: The keys of the pools.
        clock: Where times come from.
        kept: For how long they are kept, and how many; None to go on with the last writer's choice.
        draw: Makes a random word of so many bytes, in hexadecimal.
        pack: Packs a full bucket, once this process has printed its result.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        clock: Clock,
        kept: Kept | None = None,
        draw: Callable[[int], str] = secrets.token_hex,
        pack: Callable[[], object] = lambda: None,
    ) -> None:
        self._pack = pack
        self._gateway = gateway
        self._keys = gateway.keys
        self._clock = clock
        self._kept = kept
        self._writes = kept is None or kept.number > 0
        self._draw = draw
        # What was read of the bucket of now, and that bucket if it can be used; None before.
        self._now: tuple[KeyValue | None, Bucket | None] | None = None

    def commit(
        self,
        guards: Sequence[Json],
        then: Sequence[Json],
        otherwise: Sequence[Json] = (),
        *,
        events: Sequence[Event],
    ) -> Outcome:
        """Commit a transaction, see `Gateway.commit`, and write some events with it."""
        events = [each for each in events if is_written(each.type, each.kind)]
        if not (self._writes and events):
            return self._gateway.commit(guards, grouped(then), otherwise)
        token, repeated = self._draw(_TOKEN_BYTES), False
        while True:
            looks = int(token, 16) % _LOOK_EVERY == 0
            now, bucket = self._bucket_of_now(looks=looks)
            if bucket is None or now is None:
                return self._gateway.commit(guards, grouped(then), otherwise)
            puts = [
                put(
                    self._keys.event(bucket.name, event.type, event_token(token, index)),
                    encode_event(event),
                    etcd_lease_id=bucket.etcd_lease_id,
                )
                for index, event in enumerate(events)
            ]
            try:
                outcome = self._gateway.commit(
                    [*guards, unchanged(now.key, now.mod_revision)],
                    grouped([*then, *puts]),
                    [*otherwise, read(self._keys.bucket_now)],
                )
            except (NoSpace, InvalidArgument):
                return self._gateway.commit(guards, grouped(then), otherwise)
            repeated = repeated or outcome.repeated
            outcome = outcome._replace(repeated=repeated)
            if outcome.succeeded:
                if looks and not all(event.kind in _BEGINNINGS for event in events):
                    leave(self._pack)  # a full bucket, once this process has printed its result
                return outcome
            *answers, found = outcome.answers
            self._now = found.first, usable_bucket(found.first)
            if found.first == now:  # it wasn't for that
                return outcome._replace(answers=tuple(answers))

    def _bucket_of_now(self, *, looks: bool) -> tuple[KeyValue | None, Bucket | None]:
        """The bucket to write to; None where there is none, and none can be made."""
        if self._now is None:
            (found,) = self._gateway.read(read(self._keys.bucket_now)).answers
            self._now = found.first, usable_bucket(found.first)
        now, bucket = self._now
        if bucket is None or looks or self._is_old(bucket):
            with contextlib.suppress(LeaseError):
                now = self.next_bucket(now)
                bucket = usable_bucket(now)
                self._now = now, bucket
        return now, bucket

    # Buckets

    def _is_old(self, bucket: Bucket) -> bool:
        """Tell whether a bucket has been written to for long enough."""
        return self._clock.wall() - bucket.made > bucket.span_seconds

    def next_bucket(self, seen: KeyValue | None) -> KeyValue | None:
        """Make the next bucket, if that is called for, and end the oldest.

        Args:
            seen: The bucket of now, as it was just read; None where there is none.

        Returns:
            The bucket of now.

        Raises:
            LeaseError: It couldn't be made.
        """
        bucket = usable_bucket(seen)
        events = self._keys.events
        own = events if bucket is None else self._keys.events_in(bucket.name)
        outcome = self._gateway.read(
            read(self._keys.bucket_now),
            count(own),
            count(events),
            read_all(self._keys.packs, keys_only=True),
            read_all(self._keys.buckets),
        )
        now, in_it, unpacked, packs, all_buckets = outcome.answers
        bucket = usable_bucket(now.first)
        has_room = bucket is not None and in_it.count < bucket.size and not self._is_old(bucket)
        if bucket is not None and (now.first != seen or has_room):
            return now.first
        kept = self._kept or (bucket.kept if bucket else Kept())
        made = self._make(now.first, bucket, outcome.revision, kept)
        with contextlib.suppress(LeaseError):  # whoever makes the next goes on
            packed = packed_numbers(packs)
            self._end_oldest(readable_buckets(all_buckets), kept, unpacked.count, packed)
        return made

    def _make(
        self, seen: KeyValue | None, followed: Bucket | None, revision: int, kept: Kept
    ) -> KeyValue | None:
        keys, etcd_lease_id = self._keys, new_etcd_lease_id()
        name = f"{revision:0{_DIGITS}d}"
        previous = followed.name if followed else ""
        record = encode_bucket(name, self._clock.wall(), kept, previous=previous)
        self._gateway.grant(etcd_lease_id, math.ceil(kept.seconds * (1 + 1 / _BUCKETS)))
        now, before = keys.bucket_now, 0 if seen is None else seen.mod_revision
        with contextlib.suppress(EtcdLeaseGone):  # it has taken too long
            outcome = self._gateway.commit(
                [unchanged(now, before)],
                [
                    put(now, record, etcd_lease_id=etcd_lease_id),
                    put(keys.bucket(name), record, etcd_lease_id=etcd_lease_id),
                    read(now),
                ],
                [read(now)],
            )
            (found,) = outcome.answers
            if found.first is None or found.first.etcd_lease_id != etcd_lease_id:
                self._gateway.revoke(etcd_lease_id)  # somebody else was first
            return found.first
        return None

    def _end_oldest(
        self, buckets: Sequence[Bucket], kept: Kept, unpacked: int, packed: Mapping[str, int]
    ) -> None:
        """End buckets that are too many or too old; never the last, which is written to.

        Args:
            buckets: All there are, the oldest first.
            kept: Which events are kept.
            unpacked: How many there are that aren't packed.
            packed: How many are packed, by bucket.
        """
        number = unpacked + sum(packed.values())
        oldest = [each for each in buckets[:-1] if each.is_usable][:_MOST_ENDED_FOR_NUMBER]
        if not oldest:
            return
        counts = self._gateway.read(
            *(count(self._keys.events_in(each.name)) for each in oldest)
        ).answers
        followers = (each.made for each in buckets[1:])
        for index, (bucket, found, end) in enumerate(zip(oldest, counts, followers)):
            in_it = found.count + packed.get(bucket.name, 0)
            is_over = number - in_it >= kept.number
            is_old = index < _MOST_ENDED_FOR_AGE and self._clock.wall() - end > kept.seconds
            if not is_over and not is_old:
                return
            self._gateway.revoke(bucket.etcd_lease_id)
            number -= in_it


def usable_bucket(kv: KeyValue | None) -> Bucket | None:
    """The bucket of now, if events can be written to it."""
    if kv is None:
        return None
    with contextlib.suppress(CorruptState):
        bucket = parse_bucket(kv)
        return bucket if bucket.is_usable else None
    return None


def readable_buckets(found: Found) -> list[Bucket]:
    """Return the readable buckets, the oldest first."""
    buckets = []
    for kv in found.items:
        with contextlib.suppress(CorruptState):
            bucket = parse_bucket(kv)
            if kv.key.endswith(f"/{bucket.name}"):
                buckets.append(bucket)
    return buckets


def packed_numbers(found: Found) -> dict[str, int]:
    """How many events of a bucket are packed, by its name, as the keys of the packs say it."""
    numbers = {}
    for kv in found.items:
        number = kv.key.rpartition("/")[2]
        is_one = number.isdecimal() and number.isascii() and len(number) < _DIGITS
        numbers[packed_bucket(kv)] = int(number) if is_one else 0
    return numbers


def packed_bucket(kv: KeyValue) -> str:
    """The name of the bucket that a pack is of."""
    return kv.key.rpartition("/")[0].rpartition("/")[2]


# Records of events


def encode_event(event: Event) -> str:
    """Write an event, without what its key says; `parse_event` reads it back."""
    record = {
        field: round(value, _DECIMALS) if isinstance(value, float) else value
        for field, value in event_record(event, "number", "type").items()
    }
    return json.dumps(record, separators=(",", ":"))


def parse_event(kv: KeyValue) -> Event:
    """Read a key below ``event/``.

    Raises:
        CorruptState: It isn't in leasectl's format.
    """
    try:
        record, end = _DECODER.raw_decode(kv.value)
        if end != len(kv.value):
            raise Malformed("an event is more than that")
        *_, pool_type, token = kv.key.split("/")
        known = {"number": _number_at(kv.create_revision, token), "type": read_name(pool_type)}
        if record["kind"] in _OF_A_TICKET and "ticket" not in record:
            known["ticket"] = kv.create_revision
        event = read_event(record, read_time, **known)
        if event.kind != "granted":
            return event
        # It says how large its fences are at least.
        least = (*event.fences, *[0] * len(event.names))
        fences = (fence_of(kv.create_revision, n, least[n]) for n in range(len(event.names)))
        return event._replace(fences=tuple(fences))
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def read_time(value: Any) -> float:
    """Read a time on the wall clock, in seconds, that a calendar has."""
    number = read_number(value)
    if not 0 <= number < YEAR_10000:
        raise Malformed("a field isn't a time")
    return number


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


def _number_at(revision: int, token: str) -> int:
    """The number of an event with that token: grows with etcd's revision."""
    return revision * NUMBERS_PER_REVISION + int(read_name(token)[-_INDEX_DIGITS:], 16)
