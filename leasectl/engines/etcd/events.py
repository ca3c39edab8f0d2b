"""Add events to transactions.

The change counts for more. Where an event can't be written, for want of space or because it is too
large, the change is made without it.

Encode and parse events
-----------------------

What a transaction can't know before it is made a reader takes from the event's key: its number and
a new ticket's are of the revision at which it was made, and so are the fences of a grant.
"""

from __future__ import annotations

import contextlib
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
from leasectl.engines.etcd.keys import Keys
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
from leasectl.system.clock import Clock

_TOKEN_BYTES = 6
# One transaction of so many looks whether its bucket is full.
_LOOK_EVERY = 64
# With what has just begun somebody goes on who is in a hurry.
_BEGINNINGS: tuple[EventKind, ...] = ("queued", "granted")


class EtcdEvents:
    """Writes the events below one prefix of a cluster. Threads may share it.

    Which bucket is written to is read with what is read anyway, and known from then on; whoever is
    wrong about it fails by a guard, learns better, and tries again.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        clock: Where times come from.
        kept: For how long they are kept, and how many; None for as whoever was here before said.
        draw: Makes a random word of so many bytes, in hexadecimal.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        *,
        clock: Clock,
        kept: Kept | None = None,
        draw: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._clock = clock
        self._buckets = EventBuckets(gateway, keys, kept=kept, clock=clock)
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
        """As `Gateway.commit`, and write some events with it; with none, no bucket matters."""
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
                    self._leave_packing()
                return outcome
            *answers, found = outcome.answers
            self.note_now(found.first)
            if found.first == now:  # it wasn't for that
                return outcome._replace(answers=tuple(answers))

    def _leave_packing(self) -> None:
        """Have a bucket that is full be packed, once whoever is here has had its answer."""
        with contextlib.suppress(ImportError):  # another version may have taken this one's place
            from leasectl.system.afterwards import leave

            leave(self._pack)

    def _pack(self) -> None:
        from leasectl.engines.etcd.packing import pack_a_bucket

        pack_a_bucket(self._gateway, self._keys, clock=self._clock)

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
