"""Records for tickets that a test puts by itself, and who waits with them: on the embedded pool the
name that one waits for stands there."""

from __future__ import annotations

from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.model import Claimant, Handle, Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.process import this_process


def record(state: State, handle_id: str, request: Request, *, now: float) -> None:
    """Record that a handle acquires, from now on (on the elapsed clock)."""
    handle = Handle(
        id=handle_id,
        backend="local:",
        request=request,
        owner="job/1",
        holder_identity=f"job/1/host/{handle_id}",
        state="acquiring",
        acquisition=1,
    )
    with state.transaction():
        Handles(state).create(handle, remote=False, now=now)


def waiter(
    engine: LocalEngine, state: State, handle_id: str, request: Request, *, now: float
) -> LocalWaiter:
    """Record that a handle acquires; returns who waits for it, with no ticket yet."""
    record(state, handle_id, request, now=now)
    claimant = Claimant(handle_id, f"job/1/host/{handle_id}", request, this_process())
    return engine.waiter(claimant, until=None)
