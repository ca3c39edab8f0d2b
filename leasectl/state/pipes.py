"""The folder of named pipes that waiters and runners are woken by."""

from __future__ import annotations

import os

from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.system.named_pipe import is_read


def tidy(state: State) -> None:
    """Remove the named pipes that killed waiters and runners left."""
    used = {state.waiter_pipe(pipe) for (pipe,) in state.query("SELECT pipe FROM ticket")}
    runners = state.query("SELECT id FROM handle WHERE runner IS NOT NULL")
    used |= {state.runner_pipe(handle_id) for (handle_id,) in runners}
    acquiring = state.query("SELECT id, acquisition FROM handle WHERE state = 'acquiring'")
    used |= {state.cancel_pipe(handle_id, acquisition) for handle_id, acquisition in acquiring}
    for name in os.listdir(state.path("waiters")):
        # Some are open before it is on record what for. Those on record aren't asked: it would
        # wake them all.
        path = state.waiter_pipe(name)
        if path not in used and not is_read(path):
            unlink(path)
