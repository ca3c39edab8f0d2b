"""Announce a handle after the grant, arm its delayed release, and release several handles."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leasectl.errors import BackendUnreachable, Cancelled, LeaseError, LeaseLost
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.handles import remember_release_after, renews_itself
from leasectl.text.wording import followed_by


def arm(
    service: Service,
    target: ReleaseTarget,
    delay_seconds: float,
    *,
    between: tuple[float, float] | None = None,
    again: bool = True,
) -> bool:
    """Tell the keeper to release later; this replaces an earlier delayed release of the same.

    Nothing happens if the handle no longer holds the target's leases.

    Args:
        service: On the state directory of its handle.
        target: What to release.
        delay_seconds: How long from now.
        between: The range that the delay was drawn from; None for a fixed delay.
        again: A `reacquire` of the whole handle arms it again.

    Returns:
        Whether it was armed.

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
            remember_release_after(service.state, handle, delay_seconds, between)
        service.handles.timers.arm(target, due)
        keeper_process.wake(service.state)
    return True


def leave_to_keeper(service: Service, target: ReleaseTarget) -> bool:
    """Let the keeper go on with a failed release, if it would otherwise renew the leases.

    Returns:
        Whether it does. If not, the lease ends by itself, or the user has to release it again.
    """
    handle = service.current(target)
    if handle is None or not renews_itself(handle):
        return False
    return arm(service, target, 0.0, again=False)


def leave_failed(service: Service, target: ReleaseTarget, error: BackendUnreachable) -> None:
    """Do the same, and let the error of the release say so."""
    if leave_to_keeper(service, target):
        error.args = (followed_by(error, "the keeper goes on trying to release it"),)


def release_each(
    service: Service,
    targets: Iterable[ReleaseTarget],
    *,
    tell: Callable[[tuple[str, ...]], object],
) -> None:
    """Release several targets, as many as can be.

    Args:
        service: On the state directory of their handles.
        targets: What to release.
        tell: Called with the names that each release has released.

    Raises:
        LeaseError: The first error, after all targets were tried. The keeper goes on with leases on
            a server that doesn't answer, if it would otherwise renew them.
    """
    failed: LeaseError | None = None
    for target in targets:
        try:
            tell(release(service, target))
        except BackendUnreachable as error:
            tell(error.released)
            leave_failed(service, target, error)
            failed = failed or error
        except LeaseError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def announce(
    service: Service,
    handle: Handle,
    *,
    guard: Process | None = None,
    runner: Process | None = None,
) -> None:
    """Record that the caller knows the handle: from now on it outlives this process.

    Args:
        service: On the state directory of the handle.
        handle: As returned by `acquire` or `reacquire`.
        guard: The guard from now on, instead of the one it had.
        runner: A process that renews for the handle while it lives.

    Raises:
        LeaseLost: The lease was taken by force in the meantime, or ran out.
        Cancelled: The handle was released in the meantime.
    """
    guard = guard or handle.guard
    with service.state.transaction():
        if not service.handles.announce(handle, guard=guard, runner=runner):
            raise _why_not(service, handle)
        if guard is not None:
            keeper_process.wake(service.state)


def released_before_use(handle: Handle) -> Cancelled:
    """Return the error for a handle that was released before its acquirer could use it."""
    return Cancelled(f"handle {handle.id} was released before it could be used")


def _why_not(service: Service, handle: Handle) -> LeaseError:
    record = service.handles.load(handle.id)
    if record is None or not record.lost or record.acquisition != handle.acquisition:
        return released_before_use(handle)
    why = f" ({record.lost_reason})" if record.lost_reason else ""
    return LeaseLost(f"the lease of {handle.type} was lost{why} before it could be used")


def take_back(service: Service, handle: Handle) -> None:
    """Undo a grant that can't be announced. A handle that was known before can be reacquired later.

    Raises:
        LeaseError: See `release`.
    """
    if handle.acquisition == 1:
        finish(service, handle)
    else:
        release(service, whole(handle))
