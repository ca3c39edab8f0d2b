"""How things went in a pool over time, in as many steps as a picture has room for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from leasectl.pools.statistics import ALWAYS, PEAK_SECONDS, Window, bounds, starts_within
from leasectl.pools.timeline import Timeline


class Series(NamedTuple):
    """How things went over time: a stretch of time in equal steps, each with one value.

    As JSON it is ``series._asdict()``.

    Args:
        since: When the first step begins, wall clock, seconds since the epoch.
        until: When the last ends.
        held: Resources held, on average over each step.
        waiting: Who waited, likewise.
        starts: The most grants within a minute that ended in the step.
        capacity: Resources there were, on average; None when nobody knows.
    """

    since: float
    until: float
    held: tuple[float, ...]
    waiting: tuple[float, ...]
    starts: tuple[int, ...]
    capacity: tuple[float, ...] | None

    @property
    def step_seconds(self) -> float:
        return (self.until - self.since) / len(self.held)


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
    return Series(
        since,
        until,
        scale.means((begin, end, 1) for begin, end in timeline.held_until(until)),
        scale.means((begin, end, 1) for begin, end in timeline.waiting_until(until)),
        _starts(timeline, scale),
        _capacity(timeline, scale),
    )


class _Scale(NamedTuple):
    since: float
    until: float
    steps: int

    @property
    def width(self) -> float:
        return (self.until - self.since) / self.steps

    def step_of(self, at: float) -> int:
        """Which step a time is in; that it is in one at all is known."""
        if not self.width:
            return 0
        return min(self.steps - 1, max(0, int((at - self.since) / self.width)))

    def means(self, intervals: Iterable[tuple[float, float, int]]) -> tuple[float, ...]:
        """How much there was in each step, on average, of what lasts for a time and has a size."""
        if not self.width:
            return (0.0,) * self.steps
        within = [0.0] * self.steps  # of those that begin or end there
        change = [0] * (self.steps + 1)  # of those that last all of it
        for begin, end, size in intervals:
            begin, end = max(begin, self.since), min(end, self.until)
            if begin >= end:
                continue
            first, last = self.step_of(begin), self.step_of(end)
            if first == last:
                within[first] += size * (end - begin) / self.width
                continue
            within[first] += size * (first + 1 - (begin - self.since) / self.width)
            within[last] += size * ((end - self.since) / self.width - last)
            change[first + 1] += size
            change[last] -= size
        return tuple(
            round(max(0.0, whole + part), 6) for whole, part in zip(accumulate(change), within)
        )


def _starts(timeline: Timeline, scale: _Scale) -> tuple[int, ...]:
    grants = sorted(timeline.grants)
    found = [0] * scale.steps
    for at, number in zip(grants, starts_within(grants)):
        if scale.since <= at <= scale.until:
            step = scale.step_of(at)
            found[step] = max(found[step], number)
    if scale.width >= PEAK_SECONDS:
        return tuple(found)
    # In short steps a minute goes on beyond the step of its grant.
    for step in range(scale.steps):
        begin = scale.since + step * scale.width
        minute = bisect_right(grants, begin) - bisect_right(grants, begin - PEAK_SECONDS)
        found[step] = max(found[step], minute)
    return tuple(found)


def _capacity(timeline: Timeline, scale: _Scale) -> tuple[float, ...] | None:
    steps = timeline.capacity_steps()
    if not steps:
        return None
    ends = [at for at, _ in steps[1:]] + [scale.until]
    return scale.means((begin, end, count) for (begin, count), end in zip(steps, ends))
