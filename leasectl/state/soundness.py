"""Whether the database can be read, and whether what is read can be believed."""

from __future__ import annotations

import re

from leasectl.state.directory import State
from leasectl.typed.tuples import NamedTuple

_NULL = re.compile(r"NULL value in (\w+)\.(\w+)")


class Soundness(NamedTuple):
    """What SQLite says of a database.

    Args:
        problem: The first that it found; None when it is sound.
        journal_mode: ``wal``, unless the file system can't do that.
        schema_version: As the database has it.
    """

    problem: str | None
    journal_mode: str
    schema_version: int


def check_readable(state: State) -> None:
    """Read something.

    Raises:
        CorruptState: That isn't possible.
    """
    state.query("SELECT 1 FROM pool LIMIT 1")


def examine(state: State) -> Soundness:
    """Look through the whole database."""
    found = (text for (text,) in state.query("PRAGMA integrity_check(10000)") if text != "ok")
    problem = next((each for each in found if _is_so(state, each)), None)
    ((journal_mode,),) = state.query("PRAGMA journal_mode")
    ((schema_version,),) = state.query("PRAGMA user_version")
    return Soundness(problem, journal_mode, schema_version)


def _is_so(state: State, problem: str) -> bool:
    """Tell whether a problem that SQLite names is one.

    SQLite 3.40 looks into another column than it names where columns of the primary key aren't the
    first of a table without rowids, and so may find a NULL in each row: in `made_pool` it does.
    """
    named = _NULL.fullmatch(problem)
    if named is None:
        return True
    table, column = named.groups()
    # Not `IS NULL`, which is never looked up in a column that is declared NOT NULL.
    return bool(state.query(f"SELECT 1 FROM {table} WHERE typeof({column}) = 'null' LIMIT 1"))
