"""What is due when."""

from __future__ import annotations

import random

from leasectl.system.due_times import DueTimes


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
