"""What came of a pool's leases in a window of time, in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from leasectl.pools.timeline import Present, Timeline
from leasectl.state.event import Event
from leasectl.typed.tuples import NamedTuple

PEAK_SECONDS = 60.0
# Times of grants that are a pace apart are sums of numbers that no float has exactly.
_EXACT_TO = 1e-3
# What a pace leaves free of what the pool could do, so that a queue gets shorter.
PACE_HEADROOM = 1.2


class Window(NamedTuple):
    """A stretch of time, wall clock, in seconds since the epoch.

    Args:
        since: From when on; None from the first event on.
        until: Up to when; None up to the last event.
    """

    since: float | None = None
    until: float | None = None


ALWAYS = Window()


class Spread(NamedTuple):
    """How long something took, in seconds: percentiles by nearest rank.

    So each is one of the values: the smallest that at least that share of them doesn't exceed.
    """

    p50: float
    p95: float
    max: float


class Statistics(NamedTuple):
    """What came of a pool's leases in a window of time.

    A grant counts when it was in the window, and so does an end; a hold that goes beyond it counts
    for the utilisation with what was inside.

    Args:
        since: When the window begins, not before the first event; wall clock.
        until: When it ends.
        grants: Acquisitions granted, whatever their counts.
        wait: Of those; None where there are none.
        hold: Of the leases that ended, one for each resource; None likewise.
        peak_starts: The most grants within any minute, which is less than 60 s.
        utilisation: The share of all resources' time in which they were held, 0 to 1; None when
            nobody knows how many there were.
        gave_up: Requests that ended without a grant.
        lost: Leases that ended against their holders' will.
        taken_back: Leases that were taken back from the dead.
        capacity: Resources there were at the end; None when nobody knows.
        held: Leases at the end of the window.
        waiting: Who waited at its end.
        makespan_seconds: From the first request to the end of the last lease, of all events; None
            as long as none has ended.
        resources_per_grant: How many a grant was for, on average; None where there are none.
    """

    since: float
    until: float
    grants: int
    wait: Spread | None
    hold: Spread | None
    peak_starts: int
    utilisation: float | None
    gave_up: int
    lost: int
    taken_back: int
    capacity: int | None
    held: int
    waiting: int
    makespan_seconds: float | None
    resources_per_grant: float | None

    @property
    def advised_pace_seconds(self) -> float | None:
        """Which pace would spread the grants and cost next to nothing; None when unknown.

        Every hold's time the pool has room for as many grants as it has resources; at that pace,
        a little faster, they come one by one instead of all at once.
        """
        if self.hold is None or not self.capacity or self.resources_per_grant is None:
            return None
        return self.hold.p50 * self.resources_per_grant / self.capacity / PACE_HEADROOM


def statistics(
    events: Iterable[Event], window: Window = ALWAYS, present: Present | None = None
) -> Statistics:
    """Tell what came of a pool's leases.

    Args:
        events: Of one pool, in the order of their log, from its beginning on: those before the
            window say who held in it.
        window: The stretch of time that counts.
        present: How things stand now; None for what the events say. Not with a window that ended
            in the past, whose end it isn't.
    """
    timeline = Timeline()
    for event in events:
        timeline.add(event)
    if present is not None:
        timeline.settle(present)
    return statistics_of(timeline, window)


def statistics_of(timeline: Timeline, window: Window = ALWAYS) -> Statistics:
    """The same, of events that have been put together."""
    since, until = bounds(timeline, window)
    inside = [n for n, at in enumerate(timeline.grants) if since <= at <= until]
    counts = [timeline.grant_counts[n] for n in inside]
    holds = [h for at, h in zip(timeline.ended, timeline.holds) if since <= at <= until]
    held = list(timeline.held_until(math.inf))
    steps = timeline.capacity_steps()
    return Statistics(
        since=since,
        until=until,
        grants=len(inside),
        wait=spread([timeline.grant_waits[n] for n in inside]),
        hold=spread(holds),
        peak_starts=max(starts_within([timeline.grants[n] for n in inside]), default=0),
        utilisation=_utilisation(held, steps, since, until),
        gave_up=_number_within(timeline.gave_up, since, until),
        lost=_number_within(timeline.lost, since, until),
        taken_back=_number_within(timeline.taken_back, since, until),
        capacity=[count for at, count in steps if at <= until][-1] if steps else None,
        held=_number_at(held, until),
        waiting=_number_at(timeline.waiting_until(math.inf), until),
        makespan_seconds=_makespan(timeline),
        resources_per_grant=sum(counts) / len(counts) if counts else None,
    )


def bounds(timeline: Timeline, window: Window) -> tuple[float, float]:
    """From when to when a window is, as far as anything is known; both are 0 without events."""
    first = timeline.first or 0.0
    until = timeline.last if window.until is None else window.until
    since = first if window.since is None else max(first, window.since)
    return min(since, until), until


def spread(seconds: Iterable[float]) -> Spread | None:
    """How long things took; None of nothing."""
    values = sorted(seconds)
    if not values:
        return None
    return Spread(percentile(values, 50), percentile(values, 95), values[-1])


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that has that rank among sorted ones: the nearest that isn't below it."""
    return values[max(1, -(-percent * len(values) // 100)) - 1]


def starts_within(grants: Iterable[float], seconds: float = PEAK_SECONDS) -> list[int]:
    """For each grant, in the order of time, how many there were in the stretch that ends with it.

    Args:
        grants: When they were, in seconds.
        seconds: How long the stretch is; whoever is as far apart isn't in it together.
    """
    times = sorted(grants)
    found, first = [], 0
    for n, at in enumerate(times):
        while at - times[first] >= seconds - _EXACT_TO:
            first += 1
        found.append(n - first + 1)
    return found


def _utilisation(
    held: Iterable[tuple[float, float]],
    steps: list[tuple[float, int]],
    since: float,
    until: float,
) -> float | None:
    ends = [at for at, _ in steps[1:]] + [math.inf]
    there = sum(
        count * max(0.0, min(end, until) - max(begin, since))
        for (begin, count), end in zip(steps, ends)
    )
    taken = sum(
        min(end, until) - max(begin, since) for begin, end in held if end > since and begin < until
    )
    return min(1.0, taken / there) if there else None


def _number_within(times: Iterable[float], since: float, until: float) -> int:
    return sum(since <= at <= until for at in times)


def _number_at(intervals: Iterable[tuple[float, float]], at: float) -> int:
    return sum(begin <= at < end for begin, end in intervals)


def _makespan(timeline: Timeline) -> float | None:
    if timeline.arrival is None or timeline.completion is None:
        return None
    return max(0.0, timeline.completion - timeline.arrival)
