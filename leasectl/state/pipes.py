"""The folder of named pipes that waiters and runners are woken by.

Who cleans /tmp may remove it while it is empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from leasectl.state.database import errors_of, make_folder, unlink
from leasectl.state.directory import State
from leasectl.system.named_pipe import NamedPipe, is_read

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
    """The paths of pipes that a record has as somebody's."""
    used = {state.waiter_pipe(pipe) for (pipe,) in state.query("SELECT pipe FROM ticket")}
    for handle_id, acquisition, is_run, is_acquired in state.query(_LISTENING):
        if is_run:
            used.add(state.runner_pipe(handle_id))
        if is_acquired:
            used.add(state.cancel_pipe(handle_id, acquisition))
    return used
