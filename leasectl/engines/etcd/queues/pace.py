"""A pool's pace, without comparing clocks.

What the grants of a pool owe its pace is a level, in grants: each adds one, each pace that goes by
takes one off, and none may lift it above the burst. The claim writes the level as it is right after
it to ``pace/<type>``. What has gone by since is nobody's date. It is how long a process has itself
known of that grant: since the answer, or the event of a watch, that first showed it the revision
which the claim has given ``grants/<type>``. Waiters behind others hear of it as well, so that who
comes to the head has mostly known of it from the start. The next claim is guarded by that revision.

Never faster: let ``X`` be the true level, which a grant lifts by 1 and each pace lowers by 1, down
to 0. A waiter can't know of a grant before it was committed, and its claim is committed after it
has read its clock. So more time lies between the two commits than it has counted, however long
requests, suspended machines or members take that lag; and no other grant does, for that would
have changed the revision. What it writes, ``max(0, level - counted / pace) + 1``, is by induction
at least ``X``. It claims only if that is at most the burst. Of grants within a time ``T`` the first
leaves ``X`` at 1 or more and each other adds 1, while ``T / pace`` is taken off at most: so there
are no more than ``burst + T / pace``. (Clocks may differ in rate by as much as leases assume.)

Who comes later would have to wait for what has long been paid. So there is an etcd lease of the
time that the level takes to go, made by who has seen the grant and thus not begun before it; only
then the key is attached to it, guarded by that revision. Where the key has gone, nothing is owed;
before that, etcd tells how much of the lease is left, so that who comes takes over its count. Etcd
may count late, as with a new leader, and never early. Whoever is granted something with nobody
behind has it count, and whoever has to wait for what nobody counts yet, unless it has counted from
the start itself and it isn't for long. If none of them lives to do so, who comes next waits for one
pace at most.

Who has counted to the end and is passed by someone better, who hasn't, takes the key away.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import ROUNDED_SECONDS, Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    KeyValue,
    delete,
    put,
    read,
    unchanged,
)
from leasectl.engines.etcd.key_values import number_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.records import parse_settings
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.errors import LeaseError

# What is left of it by then is an error of numbers.
_ROUNDING_SECONDS = 1e-6


class Owed(NamedTuple):
    """What a pool's grants owed its pace right after the last of them.

    Args:
        settings: The pool's.
        level: In grants, as it was written.
        since: The revision of the last grant; 0 when there was none.
        written: The revision at which the level was written; 0 when it isn't there.
        counted_by: The etcd lease that ends when nothing is owed any more; 0 for none.
    """

    settings: PoolSettings
    level: float = 0.0
    since: int = 0
    written: int = 0
    counted_by: int = 0

    def paid_in(self, counted_seconds: float) -> float:
        """How long it takes until the next grant, after some time was counted; 0 for none."""
        pace, burst = self.settings.pace_seconds, self.settings.burst
        left = (min(self.level, burst) - (burst - 1)) * pace - counted_seconds
        return left if left > _ROUNDING_SECONDS else 0.0

    def after_grant(self, counted_seconds: float) -> float:
        """The level that a grant leaves, which has to be allowed; in grants."""
        pace, burst = self.settings.pace_seconds, self.settings.burst
        return min(burst, max(0.0, min(self.level, burst) - counted_seconds / pace) + 1)

    @property
    def whole_seconds(self) -> int:
        """How long it takes until nothing is left of it, and up to a second more."""
        level = min(self.level, self.settings.burst)
        return max(1, math.ceil(level * self.settings.pace_seconds))

    def is_paid(self, counted_seconds: float) -> bool:
        """Tell whether nothing is left of it."""
        return min(self.level, self.settings.burst) * self.settings.pace_seconds <= counted_seconds


def read_owed(settings: PoolSettings, pace: KeyValue | None, grants: KeyValue | None) -> Owed:
    """What was written down of it.

    Args:
        settings: The pool's.
        pace: The key ``pace/``, if it is there.
        grants: The key ``grants/``, likewise.
    """
    since = 0 if grants is None else grants.mod_revision
    if not settings.pace_seconds or pace is None:
        return Owed(settings, since=since)
    return Owed(
        settings,
        level=max(0.0, number_in(pace)),
        since=since,
        written=pace.mod_revision,
        counted_by=pace.etcd_lease_id,
    )


def pace_reads(keys: Keys, pool_type: str) -> tuple[Json, ...]:
    """What a request has to read of a pool's pace; `parse_pace` takes the answers."""
    return (
        read(keys.settings(pool_type)),
        read(keys.pace(pool_type)),
        read(keys.grants(pool_type)),
    )


def parse_pace(found: Sequence[Found]) -> Owed:
    """What came of `pace_reads`."""
    settings, pace, grants = (each.first for each in found)
    return read_owed(NO_SETTINGS if settings is None else parse_settings(settings), pace, grants)


class GrantWatch:
    """Since when a process has known of its pool's last grant. Two threads may note it."""

    def __init__(self) -> None:
        self._known = (0, 0.0)  # its revision, and since when; replaced as one

    @property
    def last(self) -> int:
        """The revision of the last grant that it knows of; 0 for none."""
        return self._known[0]

    def note(self, revision: int, now: float) -> None:
        """A grant is seen, at a time on the elapsed clock."""
        if revision > self._known[0]:
            self._known = (revision, now)

    def forget(self) -> None:
        """Forget the last grant: the store was restored, and the next has a smaller revision."""
        self._known = (0, 0.0)

    def catch_up(self, revision: int, since: float) -> None:
        """The last grant that it knows of was made before a time on the elapsed clock."""
        if self._known[0] == revision and since < self._known[1]:
            self._known = (revision, since)

    def seconds(self, revision: int, now: float) -> float:
        """How long it has known of a grant as the last; 0 if it isn't."""
        known, since = self._known
        return max(0.0, now - since) if known == revision else 0.0


class EtcdPaces:
    """What the pools below one prefix of a cluster owe.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
    """

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway = gateway
        self._keys = keys

    def have_counted(self, pool_type: str, owed: Owed) -> None:
        """Have etcd count from now on, unless there has been another grant. It may fail.

        Args:
            pool_type: Of the pool.
            owed: What was seen; the answer that showed it has come before.
        """
        etcd_lease_id = new_etcd_lease_id()
        key = self._keys.pace(pool_type)
        # That would only spare others a wait; whoever asks here has something else to do.
        with contextlib.suppress(LeaseError, EtcdLeaseGone):
            self._gateway.grant(etcd_lease_id, owed.whole_seconds)
            attached = put(key, str(owed.level), etcd_lease_id=etcd_lease_id)
            outcome = self._gateway.commit(self._is_so(pool_type, owed), [attached])
            if not outcome.succeeded and not outcome.repeated:
                self._gateway.revoke(etcd_lease_id)

    def counted(self, owed: Owed) -> float:
        """How long the last grant has been made at least, as etcd has counted it, in seconds."""
        left = self._gateway.time_left(owed.counted_by) + ROUNDED_SECONDS
        return max(0.0, owed.whole_seconds - left)

    def settle(self, pool_type: str, owed: Owed) -> None:
        """Take away what has been paid, unless there has been another grant since."""
        key = self._keys.pace(pool_type)
        with contextlib.suppress(LeaseError):  # as if it had been killed
            self._gateway.commit(self._is_so(pool_type, owed), [delete(key)])

    def _is_so(self, pool_type: str, owed: Owed) -> list[Json]:
        return [
            unchanged(self._keys.grants(pool_type), owed.since),
            unchanged(self._keys.pace(pool_type), owed.written),
        ]
