"""When the next grant is due, and how a waiting ticket ages."""

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


def effective_priority(priority: int, waited_seconds: float, aging_seconds: float) -> int:
    """The priority that a ticket counts with after a wait: each aging period is worth one.

    Args:
        priority: As asked for.
        waited_seconds: Since its ticket was put.
        aging_seconds: Of its pool; 0 for none.
    """
    if not aging_seconds:
        return priority
    return priority + int(max(0.0, waited_seconds) // aging_seconds)


def next_rise(waited_seconds: float, aging_seconds: float) -> float | None:
    """In how many seconds the effective priority is one higher; None for never."""
    if not aging_seconds:
        return None
    waited = max(0.0, waited_seconds)
    return (waited // aging_seconds + 1) * aging_seconds - waited
