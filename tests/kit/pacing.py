"""Whether a pool has granted faster than its pace allows: judged by when grants were made."""

from __future__ import annotations

from collections.abc import Sequence


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
