"""How things went in a pool over time, in as many steps as a picture has room for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from leasectl.pools.statistics import ALWAYS, PEAK_SECONDS, Window, bounds, starts_within
from leasectl.pools.timeline import Timeline
from leasectl.typed.tuples import NamedTuple

# Who is granted at once has been in the queue as well, and nobody calls that waiting.
_A_WAIT_SECONDS = 0.1


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
        peak_held: The most that were held at any instant.
        peak_waiting: The most who waited at any instant, but for who was granted at once.
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
    held, waiting = list(timeline.held_until(until)), list(timeline.waiting_until(until))
    return Series(
        since,
        until,
        scale.means((begin, end, 1) for begin, end in held),
        scale.means((begin, end, 1) for begin, end in waiting),
        _starts(timeline, scale),
        _capacity(timeline, scale),
        _peak(held, since, until),
        _peak([each for each in waiting if each[1] - each[0] >= _A_WAIT_SECONDS], since, until),
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
