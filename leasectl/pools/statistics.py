"""Numbers and series over a window of time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from leasectl.pools.timeline import Timeline
from leasectl.system.clock import rfc3339

PEAK_SECONDS = 60.0
# Times of grants that are a pace apart are sums of numbers that no float has exactly.
_EXACT_TO = 1e-3
# What a pace leaves free of what the pool could do, so that a queue gets shorter.
PACE_HEADROOM = 1.2
# Fewer holds are too few to advise a pace from.
FEWEST_FOR_ADVICE = 20


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
    """Figures about a pool's leases in a window of time.

    Grants and ends count if they were in the window. A hold that goes beyond the window counts for
    the utilisation with its part inside.

    Args:
        since: When the window begins, not before the first event; wall clock.
        until: When it ends.
        grants: Acquisitions granted, whatever their counts.
        wait: Of those; None without grants.
        hold: Of the leases that ended, one for each resource; None if none ended.
        holds: How many leases ended, one for each resource.
        peak_starts: The most grants within any minute, which is less than 60 s.
        utilisation: The share of all resources' time in which they were held, 0 to 1; None if their
            number isn't known.
        gave_up: Requests that ended without a grant.
        lost: Leases that ended against their holders' will.
        taken_back: Leases that were taken back from dead holders.
        capacity: Resources at the end; None if that isn't known.
        held: Leases at the end of the window.
        waiting: Waiters at its end.
        makespan_seconds: From the first request to the end of the last lease, of all events; None
            as long as none has ended.
        resources_per_grant: How many a grant was for, on average; None without grants.
    """

    since: float
    until: float
    grants: int
    wait: Spread | None
    hold: Spread | None
    holds: int
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
        """The pace that spreads grants at next to no cost; None if too few leases have ended.

        In the time of a hold, the pool has room for as many grants as it has resources. At that
        pace, a little faster, they come one by one instead of all at once.
        """
        if self.hold is None or not self.capacity or self.resources_per_grant is None:
            return None
        if self.holds < FEWEST_FOR_ADVICE:
            return None
        return self.hold.p50 * self.resources_per_grant / self.capacity / PACE_HEADROOM


def statistics_of(timeline: Timeline, window: Window = ALWAYS) -> Statistics:
    """Return the figures of a pool's leases.

    Args:
        timeline: Of one pool, from the beginning of its log on: events before the window say who
            held in it. It may be settled only for a window that ends now.
        window: The stretch of time that counts.
    """
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
        holds=len(holds),
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
    """Return for each grant, by time, how many fell into the stretch that ends with it.

    Args:
        grants: Their times, in seconds.
        seconds: The length of the stretch; two grants that far apart aren't in it together.
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


# Who is granted at once has been in the queue as well, and nobody calls that waiting.
_A_WAIT_SECONDS = 0.1


class Series(NamedTuple):
    """Figures over time: a stretch of time in equal steps, each with one value.

    As JSON it is ``series._asdict()``.

    Args:
        since: When the first step begins, wall clock, seconds since the epoch.
        until: When the last ends.
        held: Resources held, on average over each step.
        waiting: Waiters, on average over each step, without those that were granted at once.
        starts: The most grants within a minute that ended in the step.
        capacity: Resources, on average over each step; None if that isn't known.
        peak_held: The most that were held at any instant.
        peak_waiting: The most waiters at any instant, without those that were granted at once.
    """

    since: float
    until: float
    held: tuple[float, ...]
    waiting: tuple[float, ...]
    starts: tuple[int, ...]
    capacity: tuple[float, ...] | None
    peak_held: int = 0
    peak_waiting: int = 0

    @property
    def step_seconds(self) -> float:
        return (self.until - self.since) / len(self.held)

    @property
    def capacity_once_made(self) -> dict[int, float]:
        """The capacity by the numbers of the steps, from the step on in which the pool was made."""
        values = list(self.capacity or ())
        first = next((n for n, each in enumerate(values) if each), len(values))
        if 0 < first < len(values) - 1:
            values[first] = values[first + 1]  # not the average with what there was before: nothing
        return {n: each for n, each in enumerate(values) if n >= first}


class PictureRow(NamedTuple):
    """What a picture has a row of: a pool, or a policy that was tried on one.

    Rows that are to be compared have windows that begin and end alike.

    Args:
        title: What stands above it; a picture makes foreign text safe.
        timeline: What happened.
        window: The stretch of time to show.
    """

    title: str
    timeline: Timeline
    window: Window = ALWAYS


def series_of(timeline: Timeline, window: Window = ALWAYS, *, steps: int = 60) -> Series:
    """Tell how things went in a pool.

    Args:
        timeline: What happened.
        window: Which stretch of time; it isn't cut to what is known.
        steps: Into how many it is divided.
    """
    first, until = bounds(timeline, window)
    since = first if window.since is None else min(window.since, until)
    scale = _Scale(since, until, steps)
    held = list(timeline.held_until(until))
    waiting = [w for w in timeline.waiting_until(until) if w[1] - w[0] >= _A_WAIT_SECONDS]
    return Series(
        since,
        until,
        scale.means((begin, end, 1) for begin, end in held),
        scale.means((begin, end, 1) for begin, end in waiting),
        _starts(timeline, scale),
        _capacity(timeline, scale),
        _peak(held, since, until),
        _peak(waiting, since, until),
    )


class _Scale(NamedTuple):
    since: float
    until: float
    steps: int

    @property
    def width(self) -> float:
        return (self.until - self.since) / self.steps

    def means(self, intervals: Iterable[tuple[float, float, int]]) -> tuple[float, ...]:
        """How much there was in each step, on average, of what lasts for a time and has a size."""
        steps, width, since = self.steps, self.width, self.since
        if not width:
            return (0.0,) * steps
        # Of each interval all steps from its first on have the whole of it, from its last on none;
        # those two have a part. What ends with the scale ends in a step of its own.
        whole, part = [0] * (steps + 2), [0.0] * (steps + 1)
        for begin, end, size in intervals:
            first_at = (begin - since) / width if begin > since else 0.0
            last_at = (end - since) / width
            if last_at > steps:
                last_at = float(steps)
            if first_at >= last_at:
                continue
            first, last = int(first_at), int(last_at)
            whole[first + 1] += size
            whole[last] -= size
            part[first] += size * (first + 1 - first_at)
            part[last] += size * (last_at - last)
        return tuple(
            round(max(0.0, a + b), 6) for _, a, b in zip(range(steps), accumulate(whole), part)
        )


def _peak(intervals: Sequence[tuple[float, float]], since: float, until: float) -> int:
    """How many there were at once, at most; what ends as another begins makes room for it."""
    inside = [each for each in intervals if each[0] < each[1] > since and each[0] < until]
    ends = sorted(end for _, end in inside)
    most = ended = 0
    for begun, begin in enumerate(sorted(begin for begin, _ in inside), 1):
        while ends[ended] <= begin:
            ended += 1
        most = max(most, begun - ended)
    return most


def _starts(timeline: Timeline, scale: _Scale) -> tuple[int, ...]:
    since, until, steps, width = *scale, scale.width
    grants = sorted(timeline.grants)
    found = [0] * (steps + 1)
    for at, number in zip(grants, starts_within(grants)):
        if since <= at <= until:
            step = int((at - since) / width) if width else 0
            if number > found[step]:
                found[step] = number
    found[steps - 1] = max(found.pop(), found[steps - 1])  # of the last instant
    if width >= PEAK_SECONDS:
        return tuple(found)
    # In short steps a minute goes on beyond the step of its grant.
    for step in range(steps):
        begin = since + step * width
        minute = bisect_right(grants, begin) - bisect_right(grants, begin - PEAK_SECONDS)
        found[step] = max(found[step], minute)
    return tuple(found)


def _capacity(timeline: Timeline, scale: _Scale) -> tuple[float, ...] | None:
    steps = timeline.capacity_steps()
    if not steps:
        return None
    ends = [at for at, _ in steps[1:]] + [scale.until]
    return scale.means((begin, end, count) for (begin, count), end in zip(steps, ends))


def is_known(timeline: Timeline, window: Window) -> bool:
    """Tell whether there is anything to tell of a pool; not of one that was gone before."""
    if timeline.first is None or window.until is None or timeline.first > window.until:
        return False
    if window.since is None or timeline.last >= window.since:
        return True
    now = statistics_of(timeline, window)
    return bool(now.capacity or now.held or now.waiting)


def statistics_of_pools(
    timelines: Mapping[str, Timeline], window: Window
) -> tuple[dict[str, Statistics], list[PictureRow]]:
    """Return the statistics of each pool that has any in the window, and rows to draw.

    All rows cover the same time: the part of the window for which any pool has statistics.
    """
    known = {each: times for each, times in sorted(timelines.items()) if is_known(times, window)}
    found = {each: statistics_of(times, window) for each, times in known.items()}
    return found, [PictureRow(each, times, Window(*ends(found))) for each, times in known.items()]


def ends(found: Mapping[str, Statistics]) -> tuple[float, float]:
    """Return the first and the last time that statistics cover."""
    return min(each.since for each in found.values()), max(each.until for each in found.values())


def encode_pool_statistics(
    backend: str, found: Mapping[str, Statistics], rows: Sequence[PictureRow]
) -> dict[str, object]:
    """Encode statistics as the JSON of ``leasectl stats``."""
    pools = [
        {
            "type": row.title,
            **encode_statistics(found[row.title]),
            "series": encode_series(series_of(row.timeline, row.window)),
        }
        for row in rows
    ]
    return {"backend": backend, "pools": pools}


def busiest(
    rows: Sequence[PictureRow], found: Mapping[str, Statistics], *, at_most: int
) -> list[PictureRow]:
    """The rows of pools that were used, those with the most grants."""

    def has_use(each: Statistics) -> bool:
        return bool(each.grants or each.hold or each.gave_up or each.held or each.waiting)

    busy = [row for row in rows if has_use(found[row.title])]
    return sorted(busy, key=lambda row: -found[row.title].grants)[:at_most]


def encode_statistics(found: Statistics) -> dict[str, Any]:
    """Numbers as JSON has them: times in RFC 3339 and UTC, durations in seconds, shares of 1."""
    return {
        "since": rfc3339(found.since),
        "until": rfc3339(found.until),
        "grants": found.grants,
        "wait_seconds": _encode_spread(found.wait),
        "hold_seconds": _encode_spread(found.hold),
        "holds": found.holds,
        "peak_starts_within_a_minute": found.peak_starts,
        "utilisation": _rounded(found.utilisation, 6),
        "gave_up": found.gave_up,
        "lost": found.lost,
        "taken_back_for_the_dead": found.taken_back,
        "capacity": found.capacity,
        "held": found.held,
        "waiting": found.waiting,
        "resources_per_grant": _rounded(found.resources_per_grant),
        "advised_pace_seconds": _rounded(found.advised_pace_seconds),
    }


def encode_series(series: Series) -> dict[str, Any]:
    """A series as JSON: lists with a value for each step."""
    return {
        **series._asdict(),
        "since": rfc3339(series.since),
        "until": rfc3339(series.until),
        "step_seconds": series.step_seconds,
    }


def _encode_spread(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {key: round(value, 3) for key, value in spread._asdict().items()}


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
