"""Of a pool's pace: never faster, whatever happens in which order, and no slower than it says."""

from __future__ import annotations

import random

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.pace import after_change, after_grant, next_grant_at


def grants(settings: PoolSettings, arrivals: list[float]) -> list[float]:
    """When a pool would grant to those who come at these times, each as soon as it may."""
    paid_until, now, granted = 0.0, 0.0, []
    for arrival in arrivals:
        now = max(now, arrival)
        now = next_grant_at(settings, paid_until, now) or now
        paid_until = after_grant(settings, paid_until, now)
        granted.append(now)
    return granted


@pytest.mark.parametrize("burst", [1, 2, 5])
def test_no_window_of_time_has_more_grants_than_burst_and_pace_allow(burst: int) -> None:
    chance = random.Random(7)
    settings = PoolSettings(pace_seconds=2, burst=burst)
    arrivals = sorted(100 + chance.uniform(0, 60) ** 2 / 30 for _ in range(60))
    granted = grants(settings, arrivals)
    for first, start in enumerate(granted):
        for last, end in enumerate(granted[first:], start=first):
            assert last - first + 1 <= burst + (end - start) / 2 + 1e-9


def test_a_wave_is_served_at_the_pace_after_the_burst() -> None:
    assert grants(PoolSettings(pace_seconds=20, burst=3), [0.0] * 6) == [0, 0, 0, 20, 40, 60]


def test_a_pool_without_a_pace_never_waits() -> None:
    assert next_grant_at(PoolSettings(), 1e9, 0.0) is None


def test_a_new_pace_owes_no_more_than_its_own_burst() -> None:
    assert after_change(PoolSettings(pace_seconds=2, burst=2), 1000.0, 10.0) == 14.0
    assert after_change(PoolSettings(), 1000.0, 10.0) == 10.0
