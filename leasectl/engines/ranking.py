"""Who comes first in a queue: a pure function, the same for every store."""

from __future__ import annotations


def effective_priority(priority: int, waited_seconds: float, aging_seconds: float) -> int:
    """The priority that a ticket counts with after a wait: each ageing period is worth one.

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
