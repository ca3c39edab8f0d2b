"""Reading much of a state directory as of one instant, while others go on writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leasectl.state.database import errors_of
from leasectl.state.directory import State


@contextmanager
def snapshot(state: State) -> Iterator[None]:
    """All that is read inside is as of one instant; nothing can be changed inside.

    The lock isn't taken: SQLite's log keeps for who reads what others write over. Inside a
    transaction, or another snapshot, it is of that instant.

    Raises:
        CorruptState: The database is damaged.
    """
    if state.db.in_transaction:
        yield
        return
    with errors_of(state.path("state.db")):
        state.db.execute("BEGIN")
    try:
        yield
    finally:
        state.db.rollback()
