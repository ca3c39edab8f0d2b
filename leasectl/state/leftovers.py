"""Whose handles are left, told without reading what they hold: there may be thousands."""

from __future__ import annotations

from leasectl.state.directory import State
from leasectl.system.process import DeadProcesses

# One text of thousands comes out of SQLite in half the time of their rows.
_FOLLOWED = (
    "SELECT group_concat(id, '\n'), group_concat(coalesce(guard, ''), '\n'), "
    "group_concat(coalesce(waiter, ''), '\n') FROM handle WHERE state <> 'released' "
    "AND (guard IS NOT NULL OR waiter IS NOT NULL)"
)
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
    (texts,) = state.query(_WATCHED if only_watched else _FOLLOWED)
    if texts[0] is None:
        return []
    ids, guards, waiters = (text.split("\n") for text in texts)
    dead = DeadProcesses(most_looked_at=most_looked_at)
    gone = {each for each in dict.fromkeys(guards + waiters) if _is_in(dead, each)}
    rows = zip(ids, guards, waiters) if gone else ()
    return sorted(each for each, guard, waiter in rows if guard in gone or waiter in gone)


def _is_in(dead: DeadProcesses, process: str) -> bool:
    try:
        return process != "" and process in dead
    except ValueError:
        return True  # whoever reads the record says what is wrong with it
