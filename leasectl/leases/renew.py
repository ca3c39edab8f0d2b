"""Renew: give what a handle holds its full time again.

`renew` asks the backend and records what came of it. Who has a thread ask, as `run` and the keeper
do of servers, records by `note_renewal`.
"""

from __future__ import annotations

from collections.abc import Collection

from leasectl.backends.kinds import claim_key_of
from leasectl.errors import LeaseLost, NotAllowed
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget


def renew(service: Service, target: ReleaseTarget) -> Handle:
    """Renew everything that a handle holds.

    Args:
        service: On the state directory of its handle.
        target: The handle and the acquisition that is meant.

    Returns:
        The handle as it is now.

    Raises:
        LeaseLost: A lease of it expired or was taken away.
        NotAllowed: It holds nothing.
    """
    handle = service.handles.require(target.handle_id)
    backend = service.backend_of(handle)
    with backend.atomic():
        _record(service, target, backend.renew(claim_key_of(handle)))
    return _require_held(service, target)


def note_renewal(service: Service, target: ReleaseTarget, held: Collection[str]) -> Handle:
    """Record what came of a renewal.

    Args:
        service: On the state directory of its handle.
        target: What it was for.
        held: The names that are still held under its claim key.

    Raises:
        LeaseLost, NotAllowed: As `renew`.
    """
    _record(service, target, held)
    return _require_held(service, target)


def _record(service: Service, target: ReleaseTarget, held: Collection[str]) -> None:
    with service.state.transaction():
        current = service.current(target)
        if current is not None and current.state == "held":
            service.handles.renewed(current, service.clock.wall())
            gone = [name for name in current.names if name not in held]
            service.losses.note_gone(current, gone)


def _require_held(service: Service, target: ReleaseTarget) -> Handle:
    handle = service.handles.require(target.handle_id)
    if handle.lost:
        why = f" ({handle.lost_reason})" if handle.lost_reason else ""
        raise LeaseLost(
            f"handle {handle.id} has lost its lease{why}; get a new one with: "
            f"leasectl reacquire --handle {service.state.names_path(handle.id)}"
        )
    if handle.state != "held" or handle.acquisition != target.acquisition:
        raise NotAllowed(f"handle {handle.id} holds nothing to renew (it is {handle.state})")
    return handle
