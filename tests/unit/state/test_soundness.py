"""Whether what SQLite says of a database is believed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from leasectl.state.directory import State
from leasectl.state.soundness import examine

_VALUES = {"TEXT": "a text", "INTEGER": 1, "REAL": 1.0, "BLOB": b"bytes"}


def test_a_database_with_a_row_in_each_table_is_sound(state_dir: Path) -> None:
    with contextlib.closing(State.open(str(state_dir))) as state:
        with state.transaction():
            for (table,) in state.query("SELECT name FROM sqlite_master WHERE type = 'table'"):
                if table.startswith("sqlite_"):
                    continue
                columns = state.query(f"SELECT type FROM pragma_table_info('{table}')")
                values = [_VALUES[each["type"]] for each in columns]
                marks = ", ".join("?" * len(values))
                state.db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)
        assert examine(state).problem is None


def test_a_value_that_is_missing_is_found(state_dir: Path) -> None:
    State.open(str(state_dir)).close()
    _allow_null(state_dir / "state.db", "settings TEXT", "settings TEXT NOT NULL")
    with contextlib.closing(State.open(str(state_dir))) as state:
        assert examine(state).problem == "NULL value in made_pool.settings"


def _allow_null(path: Path, nullable: str, declared: str) -> None:
    """Put a row without a value into a table that takes none such."""

    def declare(before: str, after: str) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'made_pool'",
            (before, after),
        )
        db.close()

    declare(declared, nullable)
    db = sqlite3.connect(path)
    with db:
        db.execute("INSERT INTO made_pool VALUES ('none:', NULL, 'T', 'a process')")
    db.close()
    declare(nullable, declared)
