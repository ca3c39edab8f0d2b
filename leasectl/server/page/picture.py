"""The last hours of a pool as a picture: three bands over one stretch of time, in SVG."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.pools.series import Series
from leasectl.pools.shown import ShownPool
from leasectl.server.page.markup import Markup, joined, tag
from leasectl.text.durations import format_duration

_HEIGHT = 40
# No line at the very edge, where half of it would be cut off.
_EDGE = 1


def picture(history: Series, pool: ShownPool) -> Markup:
    """Held, waiting and starts a minute, one below the other.

    Args:
        history: How things went.
        pool: As it is now.
    """
    capacity = max((pool.capacity, *(history.capacity or ())))
    # What is known of now may be later than the history.
    most_held = max(pool.held, history.peak_held)
    most_waiting = max(len(pool.queue), history.peak_waiting)
    most_starts = max(history.starts)
    span = history.until - history.since
    axis = f"{_ago(span)} ago", f"{_ago(span / 2)} ago", "now"
    bands = (
        _band(
            "held",
            f"Held: {pool.held} now, at most {most_held} of {_number(capacity)}",
            axis,
            _capacity_line(history, capacity),
            tag("path", d=_area(history.held, capacity)),
        ),
        _band(
            "waiting",
            f"Waiting: {len(pool.queue)} now, at most {most_waiting}",
            axis,
            tag("path", d=_area(history.waiting, max(1.0, *history.waiting))),
        ),
        _band(
            "starts",
            f"Starts a minute: at most {most_starts}",
            axis,
            tag("path", d=_bars(history.starts, most_starts)),
        ),
    )
    return tag("figure", *bands, class_="history")


def _band(kind: str, title: str, axis: Sequence[str], *shapes: Markup) -> Markup:
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 1000 {_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    times = joined(tag("span", each) for each in axis)
    below = tag("p", times, class_="axis", aria_hidden="true")
    return tag("div", tag("p", title), drawing, below, class_=f"band {kind}")


def _capacity_line(history: Series, top: float) -> Markup:
    if history.capacity is None:
        return Markup()
    step = 1000 / len(history.capacity)
    points = " ".join(
        f"{_x(n * step)},{_y(value, top)} {_x((n + 1) * step)},{_y(value, top)}"
        for n, value in enumerate(history.capacity)
    )
    return tag("polyline", points=points, class_="capacity")


def _area(values: Sequence[float], top: float) -> str:
    """The outline of an area from the ground up to the values, as steps."""
    step = 1000 / len(values)
    parts = [f"M0,{_HEIGHT}"]
    drawn = ""
    for n, value in enumerate(values):
        y = _y(value, top)
        if y != drawn:
            parts.append(f"H{_x(n * step)}V{y}")
            drawn = y
    return "".join([*parts, f"H1000V{_HEIGHT}Z"])


def _bars(values: Sequence[float], top: float) -> str:
    """A bar for each value that isn't zero."""
    step = 1000 / len(values)
    return "".join(
        f"M{_x(n * step)},{_HEIGHT}V{_y(value, top)}H{_x((n + 1) * step)}V{_HEIGHT}Z"
        for n, value in enumerate(values)
        if value
    )


def _x(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _y(value: float, top: float) -> str:
    room = _HEIGHT - _EDGE
    return _x(_HEIGHT - room * min(1.0, value / top if top else 0.0))


def _number(value: float) -> str:
    """A number that is an average, as people read it: 0.4 of one is some, and not none."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".replace(".0", "")


def _ago(seconds: float) -> str:
    return format_duration(round(seconds))
