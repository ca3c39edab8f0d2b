"""Named pipes of waiters, and files of killed processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from leasectl.state.database import errors_of, make_folder, unlink
from leasectl.state.directory import State
from leasectl.system.named_pipe import NamedPipe, is_read
from leasectl.system.process import DeadProcesses

_LISTENING = (
    "SELECT id, acquisition, runner IS NOT NULL, state = 'acquiring' FROM handle "
    "WHERE state <> 'released' AND (runner IS NOT NULL OR state = 'acquiring')"
)


def listen(path: str) -> NamedPipe:
    """Make a named pipe in the folder, and the folder if it has been removed.

    Raises:
        StateUnwritable: That can't be done.
    """
    with errors_of(path):
        try:
            return NamedPipe(path)
        except FileNotFoundError:
            make_folder(os.path.dirname(path))
            return NamedPipe(path)


def tidy(state: State) -> None:
    """Remove the named pipes that killed waiters and runners left."""
    for path in unused(state):
        unlink(path)


def unused(state: State) -> Iterator[str]:
    """Find the named pipes that nobody reads any more.

    Those that are on record as somebody's aren't asked: it would wake them all.
    """
    try:
        names = sorted(os.listdir(state.path("waiters")))
    except FileNotFoundError:
        return
    used = _on_record(state) if names else set()
    for name in names:
        path = state.waiter_pipe(name)
        # Some have a reader before it is on record what for.
        if path not in used and not is_read(path):
            yield path


def _on_record(state: State) -> set[str]:
    """The paths of pipes that belong to a record."""
    used = {state.waiter_pipe(pipe) for (pipe,) in state.query("SELECT pipe FROM ticket")}
    for handle_id, acquisition, is_run, is_acquired in state.query(_LISTENING):
        if is_run:
            used.add(state.runner_pipe(handle_id))
        if is_acquired:
            used.add(state.cancel_pipe(handle_id, acquisition))
    return used


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
