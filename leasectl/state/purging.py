"""Forgetting released records, so that there are never many more than somebody may still want."""

from __future__ import annotations

from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.rows import parse_optional_process
from leasectl.system.process import is_dead

KEEP_UNGUARDED_SECONDS = 24 * 3600.0


def purge(state: State, *, now: float, limit: int) -> None:
    """Forget released records that nobody can want any more; inside a transaction.

    A released record stays as long as its guard lives, so that `reacquire` works; without a guard
    it stays for a day.

    Args:
        state: The opened state directory.
        now: CLOCK_BOOTTIME, seconds.
        limit: How many records to look at; the next call goes on with the next ones.
    """
    handles = Handles(state)
    ((cursor,),) = state.query("SELECT purge_cursor FROM meta")
    rows = state.query(
        "SELECT id, acquisition, guard, released_at FROM handle WHERE state = 'released' "
        "AND id > ? ORDER BY id LIMIT ?",
        cursor,
        limit,
    )
    for row in rows:
        guard = parse_optional_process(row["guard"])
        is_old = now - row["released_at"] >= KEEP_UNGUARDED_SECONDS
        if is_old if guard is None else is_dead(guard):
            handles.forget(row["id"], row["acquisition"])
    cursor_now = rows[-1]["id"] if len(rows) == limit else ""
    if cursor_now != cursor:
        state.db.execute("UPDATE meta SET purge_cursor = ?", (cursor_now,))
