"""Delay: have the keeper release later, or go on with a release that failed."""

from __future__ import annotations

from leasectl.leases.service import Service
from leasectl.model import ReleaseTarget
from leasectl.state import keeper_process
from leasectl.state.handles import renews_itself


def arm(
    service: Service,
    target: ReleaseTarget,
    delay_seconds: float,
    *,
    between: tuple[float, float] | None = None,
    again: bool = True,
) -> bool:
    """Have the keeper release later; an earlier arming of the same is replaced.

    Nothing happens when the handle no longer holds what was meant.

    Args:
        service: On the state directory of its handle.
        target: What to release.
        delay_seconds: How long from now.
        between: What that was drawn from; None where it is fixed.
        again: A `reacquire` of the whole handle is to arm it again.

    Returns:
        Whether it does.

    Raises:
        LeaseError: It can't be recorded, or no keeper can be started; nothing has changed.
    """
    if service.current(target) is None:
        return False
    keeper_process.ensure(service.state)
    with service.state.transaction():
        handle = service.current(target)
        if handle is None:
            return False
        due = service.clock.elapsed() + delay_seconds
        if target.names is None and again:
            from leasectl.state.amendments import remember_release_after

            remember_release_after(service.state, handle, delay_seconds, between)
        service.handles.timers.arm(target, due)
        keeper_process.wake(service.state)
    return True


def leave_to_keeper(service: Service, target: ReleaseTarget) -> bool:
    """Have the keeper go on with a release that failed, if it would else renew what is held.

    Returns:
        Whether it does. If not, the lease ends by itself, or whoever wants it released has to
        ask again.
    """
    handle = service.current(target)
    if handle is None or not renews_itself(handle):
        return False
    return arm(service, target, 0.0, again=False)
