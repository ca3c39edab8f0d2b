"""leasectl.state.fences: numbers that nobody was ever given, whatever was undone meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from leasectl.state import fences
from leasectl.state.directory import State


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "BLOCK", 5)


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
