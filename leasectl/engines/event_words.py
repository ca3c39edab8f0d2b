"""What events say in words, the same of every engine."""

from __future__ import annotations

from leasectl.engines.facts import PoolSettings
from leasectl.text.durations import format_seconds
from leasectl.text.wording import counted

# Why a ticket was given up, where its waiter didn't do so itself.
WITHDRAWN = "released while it waited"
WAITER_DIED = "its process ended"
POOL_DELETED = "the pool was deleted"


def pool_made(count: int, settings: PoolSettings) -> str:
    """What a new pool is like: its resources and how it grants."""
    return f"{counted(count, 'resource')}, {_settings(settings)}"


def resources_added(count: int) -> str:
    """That a pool has more resources."""
    return f"{counted(count, 'resource')} added"


def resources_removed(count: int) -> str:
    """That a pool has fewer resources."""
    return f"{counted(count, 'resource')} removed"


def settings_changed(before: PoolSettings, after: PoolSettings) -> str:
    """How a pool grants from now on, and how it did."""
    return f"{_settings(after)}; before: {_settings(before)}"


def _settings(settings: PoolSettings) -> str:
    pace = f"pace {format_seconds(settings.pace_seconds)}" if settings.pace_seconds else "no pace"
    burst = f", burst {settings.burst}" if settings.burst != 1 else ""
    aging = f", aging {format_seconds(settings.aging_seconds)}" if settings.aging_seconds else ""
    return f"{pace}{burst}{aging}"
