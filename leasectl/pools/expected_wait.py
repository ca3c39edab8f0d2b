"""Estimate how long a waiter will still wait.

This is only an estimate, by how long leases were held lately. A waiter writes::

    holds = RecentHolds(log, pool_type)     # once a wait
    ...
    place = Place(position=…, count=…, capacity=…, held=…, longest_age_seconds=…)
    seconds = expected_wait(place, holds.seconds())     # whenever a line is due
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from leasectl.engines.pool_admin import EventLog
from leasectl.state.event import EventFilter
from leasectl.system.clock import boottime_seconds

_EVENTS = 600  # of which every third is an end, or so
_FRESH_SECONDS = 10.0
# Who has held for a little longer than all others is about to end.
_STILL_USUAL = 1.05
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class Place(NamedTuple):
    """What is known of a wait and of the pool.

    Args:
        position: In the queue, from 1.
        count: How many are wanted.
        capacity: Resources there are.
        held: Of these.
        longest_age_seconds: Since when that is held which is held for longest; 0 for nothing.
        ages_seconds: Of all that is held, where that is known; else it is taken to have been
            granted evenly over the longest of them.
        counts_ahead: How many each of those before it wants, where that is known; else one.
        pace_seconds: Of the pool; 0 for none.
        next_grant_in_seconds: When the pace allows the next grant; 0 for now.
    """

    position: int
    count: int  # type: ignore[assignment]  # as in Request
    capacity: int
    held: int
    longest_age_seconds: float = 0.0
    ages_seconds: Sequence[float] | None = None
    counts_ahead: Sequence[int] | None = None
    pace_seconds: float = 0.0
    next_grant_in_seconds: float = 0.0


def expected_wait(place: Place, holds: Sequence[float]) -> float | None:
    """Estimate the rest of a wait, in seconds.

    A holder is expected to hold on as long as earlier holders that had held for as long. The next
    holders are expected to hold as long as all did: the first as long as half of them did, the
    others for longer and shorter.

    Args:
        place: The waiter's position.
        holds: How long leases were held lately, in seconds, in any order.

    Returns:
        None if there is no estimate: no hold time is known here, or the wait depends on a lease
            that
        has been held for longer than any of those.
    """
    if not holds or not 0 < place.count <= place.capacity:
        return None
    known, shares = sorted(holds), _shares()
    free_in = [0.0] * (place.capacity - place.held)
    free_in += [_remaining(age, known, next(shares)) for age in _ages(place)]
    heapq.heapify(free_in)
    allowed_in = place.next_grant_in_seconds
    ahead, later = place.counts_ahead or (), _shares()
    for n in range(place.position - 1):
        count = min(ahead[n] if n < len(ahead) else 1, place.capacity)
        at = _taken(free_in, count, allowed_in)
        for _ in range(count):
            heapq.heappush(free_in, at + _at_share(known, 0, next(later)))
        allowed_in = at + place.pace_seconds
    at = _taken(free_in, place.count, allowed_in)
    return at if at < math.inf else None


class RecentHolds:
    """How long leases of a pool were held lately: a bounded look at its events, now and then.

    Args:
        log: The events.
        pool_type: The pool.
        elapsed: Seconds that only grow.
    """

    def __init__(
        self, log: EventLog, pool_type: str, *, elapsed: Callable[[], float] = boottime_seconds
    ) -> None:
        self._log = log
        self._pool_type = pool_type
        self._elapsed = elapsed
        self._read_at = -math.inf
        self._holds: tuple[float, ...] = ()

    def seconds(self) -> tuple[float, ...]:
        """The last of them; empty when none is known. Asks at most each ten seconds."""
        now = self._elapsed()
        if now - self._read_at >= _FRESH_SECONDS:
            self._holds = self._read()
            self._read_at = self._elapsed()
        return self._holds

    def _read(self) -> tuple[float, ...]:
        of_pool = EventFilter(type=self._pool_type)
        return tuple(
            max(0.0, event.hold_seconds)
            for event in self._log.latest(of_pool, _EVENTS, only_recent=True)
            if event.kind == "released" and event.hold_seconds is not None
        )


def _ages(place: Place) -> Sequence[float]:
    if place.ages_seconds is not None:
        return place.ages_seconds
    step = place.longest_age_seconds / place.held if place.held else 0.0
    return [place.longest_age_seconds - n * step for n in range(place.held)]


def _shares() -> Iterator[float]:
    """Shares of 1 that are spread as evenly as can be, however many are taken; first a half.

    The additive recurrence of the golden ratio, which is the same each time.
    """
    share = 0.5
    while True:
        yield share
        share = (share + _GOLDEN) % 1.0


def _at_share(known: Sequence[float], first: int, share: float) -> float:
    """The value at a share of sorted values, starting from a lower bound."""
    return known[first + int(share * (len(known) - first))]


def _remaining(age: float, known: Sequence[float], share: float) -> float:
    """The expected rest of a hold, from the longer holds that are known."""
    first = bisect_right(known, age)
    if first < len(known):
        return _at_share(known, first, share) - age
    return 0.0 if age <= known[-1] * _STILL_USUAL else math.inf


def _taken(free_in: list[float], count: int, allowed_in: float) -> float:
    """When the next of the queue gets its resources, which are free no more then."""
    return max(allowed_in, *(heapq.heappop(free_in) for _ in range(count)))
