"""leasectl.state.reads: much that is read as of one instant."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.state.directory import State
from leasectl.state.reads import snapshot


def cursor(state: State) -> str:
    return str(state.query("SELECT purge_cursor FROM meta")[0][0])


def change(state: State, value: str) -> None:
    with state.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = ?", (value,))


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_written_meanwhile_is_seen_afterwards(state: State, fails: bool) -> None:
    with contextlib.closing(State.open(state.directory)) as other:
        with contextlib.suppress(ZeroDivisionError), snapshot(state):
            assert cursor(state) == ""
            change(other, "x")
            assert cursor(state) == ""
            if fails:
                raise ZeroDivisionError
        assert cursor(state) == "x"
        assert not state.db.in_transaction


def test_inside_another_it_is_of_that_instant(state: State) -> None:
    with contextlib.closing(State.open(state.directory)) as other, snapshot(state):
        assert cursor(state) == ""
        change(other, "x")
        with snapshot(state):
            assert cursor(state) == ""
        assert cursor(state) == "", "the inner one doesn't end the outer"


def test_inside_a_transaction_it_shows_what_that_has_changed_and_undoes_nothing(
    state: State,
) -> None:
    with state.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = 'x'")
        with snapshot(state):
            assert cursor(state) == "x"
    assert cursor(state) == "x"


def test_one_that_is_open_holds_no_writer_up(state: State) -> None:
    with snapshot(state):
        assert cursor(state) == ""
        with contextlib.closing(State.open(state.directory)) as other:
            change(other, "x")
            change(other, "y")
    assert cursor(state) == "y"
