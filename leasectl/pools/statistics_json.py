"""What came of a pool's leases, as JSON has it."""

from __future__ import annotations

from leasectl.pools.series import Series
from leasectl.pools.statistics import Spread, Statistics
from leasectl.system.clock import rfc3339
from leasectl.typed.hints import Any


def encode_statistics(found: Statistics) -> dict[str, Any]:
    """Numbers as JSON has them: times in RFC 3339 and UTC, durations in seconds, shares of 1."""
    return {
        "since": rfc3339(found.since),
        "until": rfc3339(found.until),
        "grants": found.grants,
        "wait_seconds": _encode_spread(found.wait),
        "hold_seconds": _encode_spread(found.hold),
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
    """How things went over time, as JSON has it: lists with a value for each step."""
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
