"""leasectl.state.reads: whether a database is sound, and what is read of it as of one instant."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from leasectl.errors import CorruptState
from leasectl.state.database import FORMAT
from leasectl.state.directory import State
from leasectl.state.reads import Soundness, check_readable, examine, snapshot

_VALUES = {"TEXT": "a text", "INTEGER": 1, "REAL": 1.0, "BLOB": b"bytes"}


def test_a_database_with_a_row_in_each_table_is_sound(state_dir: Path) -> None:
    with contextlib.closing(State.open(str(state_dir))) as state:
        with state.transaction():
            for (table,) in state.query("SELECT name FROM sqlite_master WHERE type = 'table'"):
                if table.startswith("sqlite_"):
                    continue
                columns = state.query(f"SELECT name, type FROM pragma_table_info('{table}')")
                # What is held can't be closed, as the table checks.
                values = [
                    _VALUES[each["type"]] if each["name"] != "closed" else 0 for each in columns
                ]
                marks = ", ".join("?" * len(values))
                state.db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)
        assert examine(state).problem is None


def test_what_there_is_to_say_of_a_sound_one(state: State) -> None:
    check_readable(state)
    assert examine(state) == Soundness(None, "wal", FORMAT)


def test_what_can_not_be_read_is_damage(state: State) -> None:
    with state.transaction() as db:
        db.execute("ALTER TABLE pool RENAME TO elsewhere")
    with pytest.raises(CorruptState, match="no such table: pool"):
        check_readable(state)


def test_what_an_index_lacks_is_found(state_dir: Path) -> None:
    with contextlib.closing(State.open(str(state_dir))) as state, state.transaction() as db:
        db.execute("INSERT INTO timer VALUES ('T-1', '', 1, 5.0)")
    with contextlib.closing(sqlite3.connect(state_dir / "state.db", isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        changed = "replace(sql, '(due)', '(acquisition)')"
        db.execute(f"UPDATE sqlite_master SET sql = {changed} WHERE name = 'timer_due'")
    with contextlib.closing(State.open(str(state_dir))) as state:
        problem = examine(state).problem
    assert problem is not None
    assert "timer_due" in problem


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
