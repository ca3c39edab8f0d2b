"""Read much of the database as of one instant, for `doctor`, `status` and the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from leasectl.state.database import errors_of
from leasectl.state.directory import State
from leasectl.state.rows import is_kept_by_client, is_renewed, parse_labels

_HAS_LEASES = "EXISTS (SELECT 1 FROM lease WHERE lease.handle = handle.id)"
_UNFOLLOWED = (
    "SELECT id, ttl_seconds, scope, explicit_ttl, runner IS NOT NULL, served, labels FROM handle "
    f"WHERE state <> 'released' AND guard IS NULL AND waiter IS NULL AND {_HAS_LEASES} "
    "AND NOT EXISTS (SELECT 1 FROM timer WHERE timer.handle = handle.id AND timer.name = '') "
    "ORDER BY id"
)
_SERVED = f"SELECT id, labels FROM handle WHERE served AND state <> 'released' AND {_HAS_LEASES}"
_OF_OTHERS = (
    "SELECT id FROM handle WHERE state <> 'released' "
    "AND (guard NOT LIKE :here OR waiter NOT LIKE :here) ORDER BY id"
)
_OLD = (
    "SELECT DISTINCT handle AS id FROM lease WHERE acquire_time < ? AND EXISTS (SELECT 1 "
    "FROM handle WHERE handle.id = lease.handle AND state <> 'released') ORDER BY id"
)
# Not sorted by position too, which takes half as long again: most hold one.
_NAMES = (
    "SELECT id, waiter IS NULL, position, lease.name FROM handle "
    "LEFT JOIN lease ON lease.handle = id WHERE state = 'held' AND adopted_claim IS NULL "
    "ORDER BY id"
)


def never_ending(state: State) -> list[str]:
    """Return the ids of handles that hold a lease which nothing on record here will end."""
    found = []
    for handle_id, ttl, scope, explicit, has_runner, served, labels in state.read(_UNFOLLOWED):
        renews = is_renewed(ttl, scope, is_explicit=bool(explicit), is_followed=bool(has_runner))
        is_elsewhere = served and is_kept_by_client(handle_id, parse_labels(labels))
        if (ttl is None or renews) and not is_elsewhere:
            found.append(handle_id)
    return found


def on_record_elsewhere(state: State) -> int:
    """Return how many handles hold a lease of `leasectl serve` for a client with records."""
    served = state.read(_SERVED)
    return sum(is_kept_by_client(handle_id, parse_labels(labels)) for handle_id, labels in served)


def of_other_namespaces(state: State, here: int) -> list[str]:
    """Return the ids of handles with a guard or a waiter in another pid namespace."""
    return [row["id"] for row in state.query(_OF_OTHERS, here=f"%:{here}:%:%")]


def held_since_before(state: State, wall_seconds: float) -> list[str]:
    """Return the ids of handles with a grant from before a time, seconds since the epoch."""
    return [row["id"] for row in state.query(_OLD, wall_seconds)]


def names_on_record(state: State) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """Yield held handles whose path may be known: id, whether announced, names in grant order."""
    for (handle_id, is_announced), rows in groupby(state.read(_NAMES), key=itemgetter(0, 1)):
        names = tuple([name for _, _, _, name in sorted(rows) if name is not None])
        yield handle_id, bool(is_announced), names


@contextmanager
def snapshot(state: State) -> Iterator[None]:
    """Read everything inside as of one instant; nothing can be changed inside.

    The lock isn't taken: SQLite's log keeps the old pages for readers. Inside a transaction, or
    another snapshot, the instant is that one's.

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


_NULL = re.compile(r"NULL value in (\w+)\.(\w+)")


class Soundness(NamedTuple):
    """The result of SQLite's checks of a database.

    Args:
        problem: The first that it found; None if there is none.
        journal_mode: ``wal``, unless the file system doesn't support that.
        format: From its header.
    """

    problem: str | None
    journal_mode: str
    format: int


def check_readable(state: State) -> None:
    """Read a row, to see whether that works.

    Raises:
        CorruptState: It doesn't.
    """
    state.query("SELECT 1 FROM pool LIMIT 1")


def examine(state: State) -> Soundness:
    """Check the whole database."""
    found = (text for (text,) in state.query("PRAGMA integrity_check(10000)") if text != "ok")
    problem = next((each for each in found if _is_so(state, each)), None)
    ((journal_mode,),) = state.query("PRAGMA journal_mode")
    ((format,),) = state.query("PRAGMA user_version")
    return Soundness(problem, journal_mode, format)


def _is_so(state: State, problem: str) -> bool:
    """Return whether a problem that SQLite reports is a real one.

    SQLite 3.40 checks the wrong column for NULL in a table without rowids if its primary key isn't
    its first columns: it finds one in each row of `made_pool`.
    """
    named = _NULL.fullmatch(problem)
    if named is None:
        return True
    table, column = named.groups()
    # Not `IS NULL`: SQLite doesn't read a column for that if it is declared NOT NULL.
    return bool(state.query(f"SELECT 1 FROM {table} WHERE typeof({column}) = 'null' LIMIT 1"))
