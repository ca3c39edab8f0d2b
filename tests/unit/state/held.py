"""Handles that are on record as if they had been granted something."""

from __future__ import annotations

from leasectl.model import Handle, Lease, Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles

ONE = Request("T")


def made(
    state: State,
    handle_id: str,
    request: Request = ONE,
    *,
    acquisition: int = 1,
    at: float = 100.0,
    **fields: object,
) -> Handle:
    """Write down a handle that holds as many names as it asks for; inside a transaction.

    Args:
        state: Where.
        handle_id: Its own; its names are made of that.
        request: What it has asked for, when the elapsed clock said 5; it was granted at 7.
        acquisition: Which of its acquisitions that is.
        at: When it was granted by the wall clock.
        fields: Of the handle besides.
    """
    identity = f"job/1/host/{handle_id}"
    asked = Handle(handle_id, "local:", request, "job/1", identity, "acquiring", acquisition)
    handle = asked._replace(**fields)  # type: ignore[arg-type]
    handles = Handles(state)
    handles.create(handle, remote=False, now=5.0)
    leases = [
        Lease(f"{handle_id}--{number:02d}", 1, 1, 1, identity, at, at, request.ttl_seconds, 0)
        for number in range(request.count)
    ]
    handles.grant(handle, leases, now=7.0)
    return handles.require(handle_id)
