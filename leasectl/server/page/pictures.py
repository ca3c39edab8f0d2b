"""Where lines, areas and bars of the page's pictures stand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from leasectl.pools.chart_axes import number_ticks, time_ticks
from leasectl.pools.lease_bars import LeaseBar
from leasectl.pools.overview import ShownPool, by_number
from leasectl.pools.statistics import Series
from leasectl.server.page.document import shown
from leasectl.text.durations import format_duration
from leasectl.text.naming import short_name
from leasectl.text.wording import counted, shorten

_TICKS = 6
# Of the drawings of charts; browsers stretch them to what there is room for.
WIDTH, HEIGHT = 1000, 100
_LONGEST_NAME = 18


class Tick(NamedTuple):
    """A line of the grid: how far along the axis it is, in per cent, and what it says."""

    at: float
    label: str


class Chart(NamedTuple):
    """One picture of something over time.

    Args:
        kind: The quantity: ``held``, ``waiting`` or ``starts``.
        title: What stands above it.
        area: The outline, a path of SVG.
        ticks: The ticks of its own axis.
        capacity: The points of the line that says how many resources there were.
    """

    kind: str
    title: str
    area: str
    ticks: Sequence[Tick]
    capacity: str = ""


def time_axis(since: float, until: float) -> list[Tick]:
    """Return the ticks of an axis of time, in UTC."""
    found = time_ticks(since, until, at_most=_TICKS, elapsed=False)
    return [Tick(_percent(each.at_seconds, until - since), each.label) for each in found]


def charts_of(series: Series, pool: ShownPool) -> tuple[Chart, ...]:
    """Return what was held, who waited and what started.

    Args:
        series: How things went.
        pool: As it is now, which may be later.
    """
    most_held = max(pool.held, series.peak_held)
    capacity = max((pool.capacity, *(series.capacity or ())))
    waiting, most_waiting = len(pool.queue), max(len(pool.queue), series.peak_waiting)
    most_starts = max(series.starts)
    of = f"{capacity:.0f}" if capacity >= 10 else f"{capacity:.1f}".replace(".0", "")
    held = f"Held: {pool.held} now, at most {most_held} of {of}"
    return (
        _chart("held", held, series.held, capacity)._replace(capacity=_line(series, capacity)),
        _chart(
            "waiting",
            f"Waiting: {waiting} now, at most {most_waiting}",
            series.waiting,
            max(1.0, *series.waiting),
        ),
        _chart("starts", f"Starts a minute: at most {most_starts}", series.starts, most_starts),
    )


def _chart(kind: str, title: str, values: Sequence[float], top: float) -> Chart:
    top = max(1.0, top)
    ticks = [Tick(100 - _percent(each, top), str(each)) for each in number_ticks(top)]
    step = WIDTH / len(values)
    parts, drawn = [f"M0,{HEIGHT}"], ""
    for n, value in enumerate(values):
        y = _y(value, top)
        if y != drawn:
            parts.append(f"H{_short(n * step)}V{y}")
            drawn = y
    return Chart(kind, title, "".join([*parts, f"H{WIDTH}V{HEIGHT}Z"]), ticks)


def _line(series: Series, top: float) -> str:
    """Return the line of the capacity, from when on there was any."""
    step = WIDTH / len(series.held)
    return " ".join(
        f"{_short(n * step)},{_y(value, top)} {_short((n + 1) * step)},{_y(value, top)}"
        for n, value in series.capacity_once_made.items()
    )


def _y(value: float, top: float) -> str:
    return _short(HEIGHT * (1 - min(1.0, value / top if top else 0.0)))


def _short(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


# More make a page that takes long to load; so narrow ones can't be told apart.
_MOST_BARS, _MOST_ROWS, _MOST_WAITS = 1500, 100, 20
_LEAST_PERCENT, _GAP_PERCENT, _WRITTEN_PERCENT = 0.3, 0.1, 3.0


class Bar(NamedTuple):
    """Something that lasted: where it stands, in per cent, what it says, and where it leads."""

    x: float
    width: float
    text: str
    title: str
    url: str = ""


class Lane(NamedTuple):
    """What happened to one resource.

    Args:
        name: The resource.
        label: As it is written beside the lane.
        leases: Its leases.
        waits: The waits for them.
    """

    name: str
    label: str
    leases: Sequence[Bar]
    waits: Sequence[Bar]


class Lanes(NamedTuple):
    """The timeline of leases and waits.

    Args:
        lanes: One for each resource.
        waiting: The requests that wait now, one below the other under the lanes.
        left_out: What isn't shown; empty for nothing.
    """

    lanes: Sequence[Lane]
    waiting: Sequence[Bar]
    left_out: str


def lanes_of(bars: Sequence[LeaseBar], pool: ShownPool, since: float, until: float) -> Lanes:
    """Return who held what in a stretch of time.

    Args:
        bars: The leases in it, the oldest first.
        pool: As it is now.
        since: When it begins, wall clock.
        until: When it ends.
    """
    scale = _Scale(since, until)
    names = sorted(
        {*(each.name for each in pool.resources), *(b.name for b in bars)}, key=by_number
    )
    drawn = bars[-_MOST_BARS:]
    of: dict[str, list[LeaseBar]] = {name: [] for name in names[:_MOST_ROWS]}
    for bar in drawn:
        if bar.name in of:
            of[bar.name].append(bar)
    lanes = [
        Lane(
            name,
            shorten(short_name(name, pool.type), _LONGEST_NAME),
            scale.spaced([scale.lease(each) for each in found]),
            scale.spaced([scale.wait(each) for each in found if each.begin - each.queued >= 1]),
        )
        for name, found in of.items()
    ]
    waiting = [
        scale.bar(each.since, until, "", f"{shown(each.holder.name)} waits")
        for each in pool.queue[:_MOST_WAITS]
    ]
    return Lanes(
        lanes,
        waiting,
        _left_out(len(bars) - len(drawn), len(names) - len(lanes), len(pool.queue) - len(waiting)),
    )


def _left_out(leases: int, resources: int, waits: int) -> str:
    said = ((leases, "older lease"), (resources, "resource"), (waits, "waiting request"))
    found = [counted(number, what) for number, what in said if number > 0]
    return f"not drawn: {', '.join(found)}" if found else ""


class _Scale(NamedTuple):
    since: float
    until: float

    def bar(self, begin: float, end: float, text: str, title: str, url: str = "") -> Bar:
        whole = self.until - self.since
        x = _percent(max(0.0, begin - self.since), whole)
        right = _percent(min(self.until, end) - self.since, whole)
        width = max(_LEAST_PERCENT, round(right - x, 2))
        return Bar(x, width, text if width >= _WRITTEN_PERCENT else "", title, url)

    def lease(self, each: LeaseBar) -> Bar:
        who, end = shown(each.who), min(each.end, self.until)
        lasted = format_duration(max(0.0, end - each.begin))
        ended = "held for" if each.end > self.until else f"to {_clock(end)},"
        title = f"{each.name}: {who}, {_clock(each.begin)} {ended} {lasted}"
        bar = self.bar(each.begin, end, who, title, each.url)
        return bar._replace(width=max(_LEAST_PERCENT, round(bar.width - _GAP_PERCENT, 2)))

    def wait(self, each: LeaseBar) -> Bar:
        waited = format_duration(each.begin - each.queued)
        title = f"{shown(each.who)} waited {waited} for {each.name}, from {_clock(each.queued)}"
        return self.bar(each.queued, each.begin, "", title)

    def spaced(self, bars: Sequence[Bar]) -> list[Bar]:
        """Return the bars that can be told from the one before."""
        found: list[Bar] = []
        for each in bars:
            if each.x + each.width < 0 or each.x > 100:
                continue
            if found and each.x - found[-1].x < _LEAST_PERCENT and each.width <= _LEAST_PERCENT:
                continue
            found.append(each)
        return found


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))
