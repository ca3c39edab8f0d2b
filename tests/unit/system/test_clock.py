"""leasectl.system.clock, and what is due when."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from leasectl.system.clock import Clock, earliest, rfc3339
from leasectl.system.due_times import DueTimes


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
    def uptime() -> float:
        return float(Path("/proc/uptime").read_text().split()[0])  # in hundredths

    clock = Clock()
    before, elapsed, after = uptime(), clock.elapsed(), uptime()
    assert before <= elapsed <= after + 0.01
    before, wall, after = time.time(), clock.wall(), time.time()
    assert before <= wall <= after


def test_the_first_is_told_until_it_is_due_at_another_time() -> None:
    times: DueTimes[str] = DueTimes()
    assert (times.first(), times.next(5.0)) == (None, None)
    times.put("b", 2.0)
    times.put("a", 1.0)
    assert times.first() == 1.0
    assert times.next(0.9) is None
    assert [times.next(1.0), times.next(5.0)] == ["a", "a"]
    times.put("a", 3.0)
    assert (times.first(), times.next(5.0)) == (2.0, "b")
    times.put("b", None)
    assert (times.first(), times.next(5.0)) == (3.0, "a")
    times.put("a", None)
    assert times.first() is None


def test_it_agrees_with_a_table_however_often_times_are_replaced() -> None:
    chance = random.Random(1)
    table: dict[int, float] = {}
    times: DueTimes[int] = DueTimes()
    for _ in range(3000):
        key, at = chance.randrange(20), chance.choice([None, chance.random()])
        times.put(key, at)
        if at is None:
            table.pop(key, None)
        else:
            table[key] = at
        assert times.first() == min(table.values(), default=None)
        key_found = times.next(0.5)
        assert (None if key_found is None else table[key_found]) == min(
            (each for each in table.values() if each <= 0.5), default=None
        )
    assert len(times._heap) <= 200
