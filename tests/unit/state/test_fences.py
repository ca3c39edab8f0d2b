"""leasectl.state.database: numbers that nobody was ever given, whatever was undone meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from leasectl.state import database
from leasectl.state.directory import State


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "FENCE_BLOCK", 5)


def drawn(state: State, count: int) -> list[int]:
    with state.transaction():
        return list(state.draw_fences(count))


def test_are_drawn_as_many_as_are_wanted_one_after_the_other(state: State) -> None:
    found = [drawn(state, count) for count in (1, 3, 1, 2, 9, 5, 1)]
    assert [len(each) for each in found] == [1, 3, 1, 2, 9, 5, 1]
    assert [fence for each in found for fence in each] == list(range(1, 23))


def test_of_one_transaction_go_on_rising_in_the_next(state: State) -> None:
    with state.transaction():
        found = [*state.draw_fences(2), *state.draw_fences(4), *state.draw_fences(1)]
    found += drawn(state, 2)
    assert len(found) == 9
    assert found == sorted(set(found))


@pytest.mark.parametrize("count", [1, 2, 5, 6, 12])
def test_that_were_drawn_by_who_then_failed_are_not_drawn_again(state: State, count: int) -> None:
    first = drawn(state, 2)
    with contextlib.suppress(ZeroDivisionError), state.transaction():
        lost = list(state.draw_fences(count))
        raise ZeroDivisionError
    then = drawn(state, 3)
    assert first[-1] < lost[0]
    assert lost[-1] < then[0]
    assert len(then) == 3


def test_what_is_written_back_besides_costs_none(state: State) -> None:
    found = drawn(state, 2)
    with state.transaction():
        state.write_back()
    assert found + drawn(state, 2) == [1, 2, 3, 4]


def test_what_is_reserved_need_not_be_read_by_who_has_read_it(state: State) -> None:
    found = drawn(state, 2)
    asked: list[str] = []
    state.db.set_trace_callback(asked.append)
    with state.transaction() as db:
        ((reserved,),) = db.execute("SELECT fence FROM meta").fetchall()
        found += state.draw_fences(2, reserved)
    state.db.set_trace_callback(None)
    assert found == [1, 2, 3, 4]
    assert sum("FROM meta" in each for each in asked) == 1


def test_that_a_block_has_not_been_written_back_costs_the_rest_of_it(state: State) -> None:
    drawn(state, 5)
    with contextlib.closing(State.open(state.directory)) as reader:
        reader.db.execute("BEGIN")
        reader.query("SELECT fence FROM meta")  # who reads on is in the way
        found = drawn(state, 1)
        reader.db.execute("COMMIT")
    assert found == [6]
    ((reserved,),) = state.query("SELECT fence FROM meta")
    assert reserved > 6
    assert drawn(state, 2) == [reserved + 1, reserved + 2]


def test_to_write_back_leaves_the_patience_as_it_was(state: State) -> None:
    drawn(state, 6)  # the sixth is of a new block
    assert [tuple(row) for row in state.query("PRAGMA busy_timeout")] == [(30_000,)]


def test_that_it_could_not_be_written_back_is_told(state: State) -> None:
    with state.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = 'x'")
    uri = f"file:{state.path('state.db')}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as reader:
        assert database.write_back(reader) is False
    assert database.write_back(state.db) is True


def test_which_were_drawn_stands_where_other_versions_look_for_it(state: State) -> None:
    drawn(state, 3)
    with open(state.path("state.lock"), "rb") as lock:
        lock.seek(8192 - 64)
        note = lock.read(24)
    ((reserved,),) = state.query("SELECT fence FROM meta")
    assert note == b"fences 1" + (3).to_bytes(8, "little") + reserved.to_bytes(8, "little")


def test_come_from_where_another_process_has_left_off(state: State) -> None:
    found = drawn(state, 2)
    with contextlib.closing(State.open(state.directory)) as other:
        found += drawn(other, 2)
        found += drawn(state, 3)
        found += drawn(other, 7)
    assert found == list(range(1, 15))


def test_are_never_less_than_what_is_reserved_where_it_is_not_known_which_were_drawn(
    state: State,
) -> None:
    drawn(state, 2)
    ((reserved,),) = state.query("SELECT fence FROM meta")
    lock = Path(state.path("state.lock"))
    lock.write_bytes(bytes(lock.stat().st_size))  # as if it were new
    assert drawn(state, 3) == list(range(reserved + 1, reserved + 4))


def test_drawn_with_more_names_files_than_there_is_room_for_none_comes_again(state: State) -> None:
    first = drawn(state, 3)
    with state.transaction():
        for number in range(1000):  # their note goes over what is noted of fences
            state.stage_names(f"azure--install-{number:06d}", ())
        second = list(state.draw_fences(3))
    third = drawn(state, 1)
    assert first[-1] < second[0] <= second[-1] < third[0]
