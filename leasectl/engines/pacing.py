"""How fast a pool grants, as pure functions: the generic cell rate algorithm.

Of what a pool has granted one number is kept: ``paid_until``, by when its pace has paid for all of
it. A grant moves that on by one pace, and may come up to ``burst - 1`` paces before its own is
paid for. So of any ``burst + k`` grants the first and the last are at least ``k`` paces apart.

Source: ITU-T I.371, the virtual scheduling algorithm.
"""

from __future__ import annotations

from leasectl.engines.facts import PoolSettings


def next_grant_at(settings: PoolSettings, paid_until: float, now: float) -> float | None:
    """When the pool may grant; None when it may now. All times are of one clock, in seconds."""
    due = paid_until - (settings.burst - 1) * settings.pace_seconds
    return due if settings.pace_seconds and due > now else None


def after_grant(settings: PoolSettings, paid_until: float, now: float) -> float:
    """What ``paid_until`` becomes by a grant; the pace has to allow that."""
    return max(paid_until, now) + settings.pace_seconds


def after_change(settings: PoolSettings, paid_until: float, now: float) -> float:
    """What ``paid_until`` becomes as the settings change: never more than these may owe.

    What was owed so far isn't made more either: a longer pace counts from the next grant on.
    """
    return min(paid_until, now + settings.burst * settings.pace_seconds)
