"""Clocks that count suspended time; deadlines.

Elapsed time and due times are CLOCK_BOOTTIME, which neither jumps nor stops in suspend; the
wall clock only goes into records, for people. Both are parameters wherever time matters, so
that tests need no sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple


def boottime_seconds() -> float:
    """Seconds since boot, suspend included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock(NamedTuple):
    """Where a component takes its time from.

    Args:
        elapsed: Seconds that only grow, since some fixed instant of this boot.
        wall: Seconds since the epoch.
    """

    elapsed: Callable[[], float] = boottime_seconds
    wall: Callable[[], float] = time.time


@lru_cache(maxsize=64)  # most of thousands of times occur twice in a row
def rfc3339(wall_seconds: float | None) -> str | None:
    """Write a wall-clock time as RFC 3339 in UTC with microseconds, as Kubernetes' MicroTime."""
    if wall_seconds is None:
        return None
    whole, micros = divmod(int(wall_seconds * 1_000_000), 1_000_000)
    return f"{_second(whole)}.{micros:06d}Z"


@lru_cache(maxsize=64)  # many of thousands of times have the same second
def _second(whole: int) -> str:
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return text.rjust(19, "0")  # the C library doesn't pad the years before 1000


def earliest(*times: float | None) -> float | None:
    """Return the first of some times, where None means never."""
    first = None
    for each in times:
        if each is not None and (first is None or each < first):
            first = each
    return first
