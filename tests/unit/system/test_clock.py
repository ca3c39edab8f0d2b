"""leasectl.system.clock"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leasectl.system.clock import Clock, earliest, rfc3339


@pytest.mark.parametrize(
    ("wall", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1700000000.5, "2023-11-14T22:13:20.500000Z"),
        (1700000000.999999, "2023-11-14T22:13:20.999999Z"),
        (951782400, "2000-02-29T00:00:00.000000Z"),
        (-62135596799, "0001-01-01T00:00:01.000000Z"),
        (None, None),
    ],
)
def test_wall_times_are_written_in_utc_with_microseconds(
    wall: float | None, text: str | None
) -> None:
    assert rfc3339(wall) == text


def test_a_time_is_utc_wherever_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        assert rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_earliest_of_some_times_is_none_only_if_all_are_never() -> None:
    assert earliest(None, 3.0, None, 2.0) == 2.0
    assert earliest(0.0, None) == 0.0
    assert earliest(None, None) is None
    assert earliest() is None


def test_elapsed_time_counts_from_boot_and_wall_time_from_the_epoch() -> None:
    clock = Clock()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(clock.elapsed() - uptime) < 5
    assert abs(clock.wall() - time.time()) < 5
