"""The files that killed waiters left, and the handles of dead processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.state.named_pipe import is_read
from leasectl.system.process import DeadProcesses

_LISTENING = (
    "SELECT id, acquisition, runner IS NOT NULL, state = 'acquiring' FROM handle "
    "WHERE state <> 'released' AND (runner IS NOT NULL OR state = 'acquiring')"
)


def tidy(state: State) -> None:
    """Remove the named pipes that killed waiters and runners left."""
    for path in unused(state):
        unlink(path)


def unused(state: State) -> Iterator[str]:
    """Find the named pipes without a reader.

    Pipes that belong to a record aren't opened: it would wake their readers.
    """
    try:
        names = sorted(os.listdir(state.path("waiters")))
    except FileNotFoundError:
        return
    used = _on_record(state) if names else set()
    for name in names:
        path = state.waiter_pipe(name)
        # A pipe may have a reader before its record is written.
        if path not in used and not is_read(path):
            yield path


def _on_record(state: State) -> set[str]:
    """Return the paths of the pipes that belong to a record."""
    used = {state.waiter_pipe(pipe) for (pipe,) in state.query("SELECT pipe FROM ticket")}
    for handle_id, acquisition, is_run, is_acquired in state.query(_LISTENING):
        if is_run:
            used.add(state.runner_pipe(handle_id))
        if is_acquired:
            used.add(state.cancel_pipe(handle_id, acquisition))
    return used


# SQLite returns one text of thousands in half the time of their rows.
_FOLLOWED = (
    "SELECT group_concat(id, '\n'), group_concat(coalesce(guard, ''), '\n'), "
    "group_concat(coalesce(waiter, ''), '\n') FROM handle WHERE state <> 'released' "
    "AND (guard IS NOT NULL OR waiter IS NOT NULL)"
)
_WATCHED = _FOLLOWED.replace("state <>", "watched = 1 AND state <>")


def ids_of_the_dead(
    state: State, *, only_watched: bool = False, most_looked_at: int | None = None
) -> list[str]:
    """Return the ids of handles that aren't released and have a dead guard or a dead waiter.

    Each process is looked at once: one may guard many handles. The record may change before the
    caller reads it.

    Args:
        state: The opened state directory.
        only_watched: Only handles that a keeper looks after.
        most_looked_at: See `DeadProcesses`.
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
        return True  # the reader of the record reports what is wrong with it
