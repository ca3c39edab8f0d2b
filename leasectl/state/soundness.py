"""Whether the database can be read, and whether what is read can be believed."""

from __future__ import annotations

from typing import NamedTuple

from leasectl.state.directory import State


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
    ((first, *_), *_) = state.query("PRAGMA integrity_check(5)")
    ((journal_mode,),) = state.query("PRAGMA journal_mode")
    ((schema_version,),) = state.query("PRAGMA user_version")
    return Soundness(None if first == "ok" else first, journal_mode, schema_version)
