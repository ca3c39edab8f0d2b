"""Whose handles are left, told without reading what they hold: there may be thousands."""

from __future__ import annotations

from leasectl.state.directory import State
from leasectl.system.process import DeadProcesses

_FOLLOWED = "FROM handle WHERE state <> 'released' AND (guard IS NOT NULL OR waiter IS NOT NULL)"
_WATCHED = _FOLLOWED.replace("state <>", "watched = 1 AND state <>")


def ids_of_the_dead(
    state: State, *, only_watched: bool = False, most_looked_at: int | None = None
) -> list[str]:
    """The ids of handles that aren't released, and have a guard or a waiter that is dead.

    Each process is asked for once: one may guard many. What it is in the record may be another's
    by the time that somebody looks there.

    Args:
        state: The opened state directory.
        only_watched: Only of handles that a keeper sees to.
        most_looked_at: As `DeadProcesses` has it.
    """
    of = _WATCHED if only_watched else _FOLLOWED
    # Mostly all live. One text of thousands comes out of SQLite in a third of the rows' time.
    (texts,) = state.query(f"SELECT group_concat(guard), group_concat(waiter) {of}")
    processes = {each for text in texts if text is not None for each in text.split(",")}
    dead = DeadProcesses(most_looked_at=most_looked_at)
    if not any(_is_in(dead, each) for each in processes):
        return []
    rows = state.query(f"SELECT id, guard, waiter {of} ORDER BY id")
    dead = DeadProcesses(most_looked_at=most_looked_at)  # the rows may be of others by now
    return [each for each, guard, waiter in rows if _is_in(dead, guard) or _is_in(dead, waiter)]


def _is_in(dead: DeadProcesses, process: str | None) -> bool:
    try:
        return process is not None and process in dead
    except ValueError:
        return True  # whoever reads the record says what is wrong with it
