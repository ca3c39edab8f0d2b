"""From one version of the schema to the next, one step each, all of them at once.

A step may find processes of the version before at work, as `schema` says.
"""

from __future__ import annotations

import sqlite3
from typing import Callable

from leasectl.state.schema import new_state_id


def migrate(db: sqlite3.Connection, *, to: int) -> None:
    """Make of an older database one of a version; whoever comes second finds it made.

    Args:
        db: The database, in autocommit mode.
        to: The version of the schema.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        for number in range(version, to):
            _STEPS[number](db)
        if version < to:
            db.execute(f"PRAGMA user_version = {to}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _name_the_directory(db: sqlite3.Connection) -> None:
    """1 to 2: an id that tells this state directory from all others, everywhere."""
    db.execute(f"ALTER TABLE meta ADD COLUMN place TEXT NOT NULL DEFAULT '{new_state_id()}'")


# By the version that they lead away from.
_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _name_the_directory}
