"""A record for a ticket that a test puts by itself: the name that it waits for stands there."""

from __future__ import annotations

from leasectl.model import Handle, Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles


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
