"""From a grant to a holder: a handle is announced, or what it got goes back.

Until a handle is announced it lives only as long as the process that acquired: whoever asked
hasn't heard of it yet, so nobody would ever release it.
"""

from __future__ import annotations

from leasectl.errors import Cancelled, LeaseError, LeaseLost
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, whole
from leasectl.state import keeper_process


def announce(
    service: Service,
    handle: Handle,
    *,
    guard: Process | None = None,
    runner: Process | None = None,
) -> None:
    """Record that whoever asked knows the handle: from now on it outlives this process.

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
    """The error for a handle that somebody has released before it was of use to who acquired."""
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
        LeaseError: As `release`.
    """
    if handle.acquisition == 1:
        finish(service, handle)
    else:
        release(service, whole(handle))
