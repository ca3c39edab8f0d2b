"""Add events to transactions.

The change counts for more. Where an event can't be written, for want of space or because it is too
large, the change is made without it.

Encode and parse events
-----------------------

What a transaction can't know before it is made a reader takes from the event's key: its number and
a new ticket's are of the revision at which it was made, and so are the fences of a grant.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from leasectl.engines.etcd.answers import InvalidArgument, NoSpace
from leasectl.engines.etcd.buckets import (
    Bucket,
    EventBuckets,
    encode_event,
    event_token,
    usable_bucket,
)
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import (
    Json,
    KeyValue,
    Outcome,
    grouped,
    put,
    read,
    unchanged,
)
from leasectl.errors import LeaseError
from leasectl.state.event import Event, EventKind, Kept
from leasectl.state.event_rows import is_written
from leasectl.system.afterwards import leave
from leasectl.system.clock import Clock

_TOKEN_BYTES = 6
# One transaction of so many looks whether its bucket is full.
_LOOK_EVERY = 64
# With what has just begun somebody goes on who is in a hurry.
_BEGINNINGS: tuple[EventKind, ...] = ("queued", "granted")


class EtcdEvents:
    """Writes the events below one prefix of a cluster. Threads may share it.

    The current bucket is read once and remembered. A write that is wrong about it fails by a guard,
    reads the new one, and is tried again.

    Args:
        gateway: The keys of the pools.
        clock: Where times come from.
        kept: For how long they are kept, and how many; None to go on with the last writer's choice.
        draw: Makes a random word of so many bytes, in hexadecimal.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        clock: Clock,
        kept: Kept | None = None,
        draw: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._gateway = gateway
        self._keys = gateway.keys
        self._clock = clock
        self._buckets = EventBuckets(gateway, kept=kept, clock=clock)
        self._writes = kept is None or kept.number > 0
        self._draw = draw
        # Replaced as one: what was read of the bucket of now, and that bucket if it can be used.
        self._now: tuple[KeyValue | None, Bucket | None] = (None, None)
        self._is_known = False

    def read_now(self) -> Json:
        """Read, in a request for something else, what `note_now` is to be told."""
        return read(self._keys.bucket_now())

    def note_now(self, now: KeyValue | None) -> None:
        """The bucket of now is that, as was just read."""
        if now is None or now != self._now[0]:
            self._now = (now, usable_bucket(now))
        self._is_known = True

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
                    [*otherwise, self.read_now()],
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
            self.note_now(found.first)
            if found.first == now:  # it wasn't for that
                return outcome._replace(answers=tuple(answers))

    def _pack(self) -> None:
        from leasectl.engines.etcd.packing import pack_a_bucket

        pack_a_bucket(self._gateway, clock=self._clock)

    def _bucket_of_now(self, *, looks: bool) -> tuple[KeyValue | None, Bucket | None]:
        """The bucket to write to; None where there is none, and none can be made."""
        if not self._is_known:
            (found,) = self._gateway.read(self.read_now()).answers
            self.note_now(found.first)
        now, bucket = self._now
        if bucket is None or looks or self._buckets.is_old(bucket):
            try:
                now = self._buckets.follow(now)
            except LeaseError:
                return now, bucket
            self.note_now(now)
        return self._now
