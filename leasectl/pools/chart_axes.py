"""The axes of charts and the colours of what they show, wherever they are drawn."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

from leasectl.text.durations import format_duration

# The page has lighter ones of the same hues on a dark ground.
COLOURS: Mapping[str, str] = {"held": "#2f6fd0", "waiting": "#b35c00", "starts": "#1f7a4d"}

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 20, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 30, 60, 180, 365, 730)),
)


class Tick(NamedTuple):
    """A tick: how far from the beginning it is, in seconds, and what it says."""

    at_seconds: float
    label: str


def time_ticks(since: float, until: float, *, at_most: int, elapsed: bool) -> tuple[Tick, ...]:
    """Where ticks stand: at full minutes, hours or days, whatever leaves few enough of them.

    Args:
        since: When the axis begins, wall clock, seconds since the epoch.
        until: When it ends.
        at_most: How many ticks there is room for.
        elapsed: Count from the beginning, instead of the time of day in UTC.
    """
    span = until - since
    step = next((each for each in _STEPS if span / each < max(1, at_most)), _STEPS[-1])
    offset = 0.0 if elapsed else -since % step
    if span <= 0 or span / step > 1000:
        return ()
    times = [offset + n * step for n in range(1 + math.floor((span - offset) / step))]
    if elapsed:
        return tuple(Tick(each, format_duration(each) if each else "0") for each in times)
    return tuple(Tick(each, _written_time(since + each, step)) for each in times if each >= 0)


def number_ticks(top: float, *, at_most: int = 3) -> tuple[int, ...]:
    """Return whole numbers from 0 up to a value, evenly apart: 0, 20, 40 for 55."""
    size = 1
    while True:
        for step in (size, 2 * size, 5 * size):
            if top / step <= at_most:
                return tuple(range(0, math.floor(top) + 1, step))
        size *= 10


def _written_time(at: float, step: float) -> str:
    date = time.gmtime(round(at))
    if step >= _DAY or (date.tm_hour, date.tm_min, date.tm_sec) == (0, 0, 0):
        return time.strftime("%m-%d", date)
    return time.strftime("%H:%M" if step >= _MINUTE else "%H:%M:%S", date)
