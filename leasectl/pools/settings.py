"""A pool's pace, burst and aging."""

from __future__ import annotations

from typing import NamedTuple

from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Pools
from leasectl.errors import InvalidRequest
from leasectl.text.durations import format_duration, format_seconds

# A claim takes some milliseconds on any engine: what is shorter would be no even pace.
SHORTEST_PACE_SECONDS = 0.1
LONGEST_PACE_SECONDS = 7 * 86400.0
LARGEST_BURST = 1000
# On a server each waiter writes its ticket anew that often.
SHORTEST_AGING_SECONDS = 1.0
LONGEST_AGING_SECONDS = 30 * 86400.0
# How long nobody gets what came to the default pool, where nobody has said so.
USUAL_GRACE_SECONDS = 120.0
LONGEST_GRACE_SECONDS = 30 * 86400.0


class SettingsChange(NamedTuple):
    """What is to be otherwise; what is None stays as it is.

    Args:
        pace_seconds: As `PoolSettings` has it, like the next two.
        burst: How many may come at once.
        aging_seconds: What waiting so long is worth one priority.
    """

    pace_seconds: float | None = None
    burst: int | None = None
    aging_seconds: float | None = None


NO_CHANGE = SettingsChange()


def changed(settings: PoolSettings, change: SettingsChange) -> PoolSettings:
    """Settings as they are after a change; without a pace there is no burst.

    Raises:
        InvalidRequest: A value can't be kept, or means nothing.
    """
    _check(change)
    after = PoolSettings(
        *(new if new is not None else old for old, new in zip(settings, change))  # type: ignore[arg-type]
    )
    if after.pace_seconds:
        return after
    if change.burst is not None and change.burst != 1:
        raise InvalidRequest(f"burst {change.burst} needs a pace; add --pace, like 20s")
    return after._replace(burst=1)


def check_grace(seconds: float) -> None:
    """Refuse a grace that can't be meant; InvalidRequest."""
    if seconds > LONGEST_GRACE_SECONDS:
        longest = format_duration(LONGEST_GRACE_SECONDS)
        raise InvalidRequest(f"grace {format_duration(seconds)}: it can be 0 to {longest}")


def grace_of(pools: Pools, pool_type: str, wanted_seconds: float | None) -> float:
    """The grace of what is to be the default pool: what is wanted, else what it has, else usual."""
    if wanted_seconds is not None:
        return wanted_seconds
    return pools.grace_seconds if pools.default == pool_type else USUAL_GRACE_SECONDS


def describe(settings: PoolSettings) -> str:
    """Say how a pool grants, for people: ``pace 20s, burst 2, aging 30m``."""
    parts = [f"pace {pace_text(settings)}"]
    if settings.burst != 1:
        parts.append(f"burst {settings.burst}")
    if settings.aging_seconds:
        parts.append(f"aging {format_seconds(settings.aging_seconds)}")
    return ", ".join(parts)


def pace_text(settings: PoolSettings) -> str:
    """The pace for people, ``none`` where there is none."""
    return format_seconds(settings.pace_seconds) if settings.pace_seconds else "none"


def _check(change: SettingsChange) -> None:
    _check_seconds("pace", change.pace_seconds, SHORTEST_PACE_SECONDS, LONGEST_PACE_SECONDS)
    _check_seconds("aging", change.aging_seconds, SHORTEST_AGING_SECONDS, LONGEST_AGING_SECONDS)
    if change.burst is not None and not 1 <= change.burst <= LARGEST_BURST:
        raise InvalidRequest(f"burst {change.burst}: it can be 1 to {LARGEST_BURST}")


def _check_seconds(what: str, seconds: float | None, shortest: float, longest: float) -> None:
    if seconds and not shortest <= seconds <= longest:
        raise InvalidRequest(
            f"{what} {_as_given(seconds)}: it can be {format_seconds(shortest)} to "
            f"{format_duration(longest)}, or 0 for none"
        )


def _as_given(seconds: float) -> str:
    """A time that is refused: also one that is too short to be shown otherwise."""
    exact = f"{seconds:.9f}".rstrip("0")
    return f"{exact}s" if seconds < SHORTEST_PACE_SECONDS else format_seconds(seconds)
