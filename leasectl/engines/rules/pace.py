"""When the next grant of a pool with a pace is due.

All instants are of one clock, in seconds. ``paid_until`` is when the grants so far are paid off.
The embedded pool keeps that instant. A cluster pool keeps the debt at its last grant, because
clocks of hosts are never compared; its clock begins when that grant was first seen.
"""

from __future__ import annotations

from leasectl.engines.facts import PoolSettings


def next_grant_at(settings: PoolSettings, paid_until: float, now: float) -> float | None:
    """Return when the pool may grant; None if it may now."""
    due = paid_until - (settings.burst - 1) * settings.pace_seconds
    return due if settings.pace_seconds and due > now else None


def after_grant(settings: PoolSettings, paid_until: float, now: float) -> float:
    """Return ``paid_until`` after a grant, which the pace has to allow."""
    return max(paid_until, now) + settings.pace_seconds


def after_change(settings: PoolSettings, paid_until: float, now: float) -> float:
    """Return ``paid_until`` after a change to these settings: never later than they allow.

    It never becomes later: a longer pace counts from the next grant on.
    """
    return min(paid_until, now + settings.burst * settings.pace_seconds)
