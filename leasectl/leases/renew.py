"""Renew leases.

`renew` asks the backend and records the result. `run` and the keeper let a thread ask a server, and
record the result by `note_renewal`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from leasectl.backends.kinds import Backend, claim_key_of, kind_of_handle
from leasectl.errors import InvalidRequest, LeaseError, NotAllowed
from leasectl.leases.request import check_ttl
from leasectl.leases.service import Service, lost_error
from leasectl.model import Handle, ReleaseTarget
from leasectl.state import keeper_process
from leasectl.state.handles import change_ttl, explain_loss, record_renewal
from leasectl.system.process import is_dead


def renew(service: Service, target: ReleaseTarget, *, ttl_seconds: float | None = None) -> Handle:
    """Renew everything that a handle holds.

    Args:
        service: On the state directory of its handle.
        target: The handle and the acquisition that is meant.
        ttl_seconds: A new ttl; None to keep the present one.

    Returns:
        The handle as it is now.

    Raises:
        LeaseLost: One of its leases expired or was taken away.
        NotAllowed: It holds nothing.
        InvalidRequest: It can't have that ttl.
    """
    handle = service.handles.require(target.handle_id)
    backend = service.backend_of(handle)
    if ttl_seconds is not None:
        return _renew_with(service, backend, target, ttl_seconds)
    with backend.atomic():
        _record(service, target, backend.renew(claim_key_of(handle), handle.names))
    _ask_why_lost(service, backend, target)
    return _require_held(service, target)


def _ask_why_lost(service: Service, backend: Backend, target: ReleaseTarget) -> None:
    """Record who has taken a lease by force, and why, if only its server knows.

    A server knows as long as it keeps the resource; our own records were updated at once.
    """
    handle = service.handles.require(target.handle_id)
    if not handle.lost or handle.lost_reason or handle.acquisition != target.acquisition:
        return
    if not kind_of_handle(handle).has_pools or not backend.remote:
        return
    with contextlib.suppress(LeaseError):
        pools = backend.pools.pools(handle.type)
        reasons = [
            each.ended
            for pool in pools
            for each in pool.resources
            if each.ended and each.claim_key == claim_key_of(handle)
        ]
        for reason in reasons[:1]:
            with service.state.transaction():
                explain_loss(service.state, handle, reason)


def _renew_with(
    service: Service, backend: Backend, target: ReleaseTarget, ttl_seconds: float
) -> Handle:
    """Renew with another ttl.

    Until the store has confirmed it, the record has the shorter of both: if this process dies, or
    the answer is lost, the next renewals come too often, but never too seldom.
    """
    _ask_why_lost(service, backend, target)
    with backend.atomic():
        handle = _require_held(service, target)
        _check_ttl(handle, ttl_seconds)
        if ttl_seconds < (handle.request.ttl_seconds or 0.0):
            _record_ttl(service, handle, ttl_seconds, explicit=handle.explicit_ttl)
        held = backend.renew(claim_key_of(handle), handle.names, ttl_seconds=ttl_seconds)
        _record_ttl(service, handle, ttl_seconds, explicit=True)
        _record(service, target, held)
    _ask_why_lost(service, backend, target)
    return _require_held(service, target)


def _check_ttl(handle: Handle, ttl_seconds: float) -> None:
    check_ttl(ttl_seconds)
    if handle.request.ttl_seconds is None:
        raise InvalidRequest(
            f"handle {handle.id} has no ttl: its lease doesn't expire, and renew can't add a ttl; "
            "give --ttl to acquire or run"
        )
    if handle.runner is not None and not is_dead(handle.runner):
        raise InvalidRequest(
            f"handle {handle.id} is renewed by leasectl run (process "
            f"{handle.runner.pid}) until its command ends, and its ttl can't be "
            "changed; leave out --ttl"
        )


def _record_ttl(service: Service, handle: Handle, ttl_seconds: float, *, explicit: bool) -> None:
    with service.state.transaction():
        change_ttl(service.state, handle, ttl_seconds, explicit=explicit)
        keeper_process.wake(service.state)  # it may have to renew at another pace now


def note_renewal(service: Service, target: ReleaseTarget, held: Collection[str]) -> Handle:
    """Record the result of a renewal.

    Args:
        service: On the state directory of its handle.
        target: What was renewed.
        held: The names that are still held under its claim key.

    Raises:
        LeaseLost, NotAllowed: See `renew`.
    """
    _record(service, target, held)
    return _require_held(service, target)


def _record(service: Service, target: ReleaseTarget, held: Collection[str]) -> None:
    with service.state.transaction():
        current = service.current(target)
        if current is not None and current.state == "held":
            record_renewal(service.state, current, service.clock.wall())
            gone = [name for name in current.names if name not in held]
            service.losses.note_there(current, [name for name in current.names if name in held])
            service.losses.note_gone(current, gone)
    service.losses.unlist()


def _require_held(service: Service, target: ReleaseTarget) -> Handle:
    handle = service.handles.require(target.handle_id)
    if handle.lost:
        raise lost_error(handle, service.state)
    if handle.state != "held" or handle.acquisition != target.acquisition:
        raise NotAllowed(
            f"handle {handle.id} holds nothing to renew (it is {handle.state}); get a new lease "
            f"with: leasectl reacquire {handle.id}"
        )
    return handle
