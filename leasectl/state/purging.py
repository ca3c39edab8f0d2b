"""Forgetting records: of what is released, so that there are never many more than somebody may
still want, and at once of what nobody will ask for again.
"""

from __future__ import annotations

from leasectl.model import Handle
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.rows import parse_optional_process
from leasectl.system.process import is_dead

KEEP_UNGUARDED_SECONDS = 24 * 3600.0
_NEXT = (
    "SELECT id, state, acquisition, guard, released_at FROM handle WHERE id > ? ORDER BY id LIMIT ?"
)
_IS_PLAIN = (
    "SELECT 1 FROM handle WHERE id = ? AND acquisition = ? AND state = 'held' "
    "AND watched = 0 AND runner IS NULL AND lost = 0"
)


def purge(state: State, *, now: float, limit: int) -> None:
    """Forget released records that nobody can want any more; inside a transaction.

    A released record stays as long as its guard lives, so that `reacquire` works; without a guard
    it stays for a day.

    Args:
        state: The opened state directory.
        now: CLOCK_BOOTTIME, seconds.
        limit: How many records to look at, of all; the next call goes on with the next ones.
    """
    handles = Handles(state)
    ((cursor,),) = state.query("SELECT purge_cursor FROM meta")
    rows = state.query(_NEXT, cursor, limit)
    for row in rows:
        if row["state"] != "released":
            continue
        guard = parse_optional_process(row["guard"])
        is_old = now - row["released_at"] >= KEEP_UNGUARDED_SECONDS
        if is_old if guard is None else is_dead(guard):
            handles.forget(row["id"], row["acquisition"])
    cursor_now = rows[-1]["id"] if len(rows) == limit else ""
    if cursor_now != cursor:
        state.db.execute("UPDATE meta SET purge_cursor = ?", (cursor_now,))


def is_plain(state: State, handle: Handle) -> bool:
    """Tell whether a handle holds nothing but what it was granted, and all of that.

    Then nobody else has to do with it: there is no guard, no `run`, no delayed release, and it has
    lost nothing.

    Args:
        state: The opened state directory.
        handle: As it was when it was granted.
    """
    return bool(state.query(_IS_PLAIN, handle.id, handle.acquisition))


def forget_plain(state: State, handle: Handle) -> None:
    """Forget a handle that `is_plain`, in the same transaction: its record and its names file."""
    state.db.execute("DELETE FROM handle WHERE id = ?", (handle.id,))
    for name in handle.names:  # with the name it takes half as long
        state.db.execute("DELETE FROM lease WHERE handle = ? AND name = ?", (handle.id, name))
    state.stage_names(handle.id, None)
