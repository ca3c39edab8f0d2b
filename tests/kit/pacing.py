"""Whether a pool has granted as fast as its pace allows and no faster, by when it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from leasectl.state.event import Event


def too_fast(
    times: Sequence[float], *, pace: float, burst: int = 1, slack: float = 0.02
) -> list[str]:
    """Say which stretches of time had more grants than ``burst + T / pace``.

    Args:
        times: Of the grants, in seconds of one clock, in any order.
        pace: Of the pool, in seconds.
        burst: Likewise.
        slack: How much later than it was decided a grant may be dated, in seconds.
    """
    ordered = sorted(times)
    return [
        f"{last - first + 1} grants within {ordered[last] - ordered[first]:.3f}s"
        for first in range(len(ordered))
        for last in range(first + burst, len(ordered))
        if ordered[last] - ordered[first] < (last - first + 1 - burst) * pace - slack
    ]


def middle_gap(times: Sequence[float]) -> float:
    """Say what there mostly is between a grant and the next, in seconds.

    A pool that is slower than its pace has all of them longer; a machine that has no time now and
    then, some.

    Args:
        times: Of the grants, in seconds of one clock, in any order.
    """
    ordered = sorted(times)
    return median(later - earlier for earlier, later in zip(ordered, ordered[1:]))


def too_late(events: Iterable[Event], *, pace: float, slack: float) -> list[str]:
    """Say which grants came later than the pace and the queue called for.

    It is for pools whose holders give back sooner than the pace uses up what there is.

    Args:
        events: Of one pool, in their order, from the first on.
        pace: Of the pool, in seconds; its burst is 1.
        slack: How much later, in seconds.
    """
    queued: dict[int, float] = {}
    due = float("-inf")
    late = []
    for event in events:
        if event.kind == "queued":
            queued[event.ticket] = event.time
        elif event.kind == "granted":
            after = event.time - max(due, queued[event.ticket])
            if after > slack:
                late.append(f"ticket {event.ticket} was granted {after:.3f}s too late")
            due = event.time + pace
    return late
