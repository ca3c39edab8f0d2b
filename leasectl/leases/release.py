"""Release what a handle holds, or leave the queue.

Any number of releases of one acquisition, at once or one after the other, succeed; the names are
returned to exactly one of them. Where the leases are rows of our own database, the release and its
record are one transaction, and this module does all of it. `release_remote` releases on a server.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.kinds import Backend, claim_key_of
from leasectl.leases.service import Service, unlist
from leasectl.model import Handle, ReleasedBy, ReleaseTarget, whole
from leasectl.state.handles import forget_plain, is_plain


def release(service: Service, target: ReleaseTarget) -> tuple[str, ...]:
    """Release a target.

    Args:
        service: On the state directory of its handle.
        target: Nothing happens if its handle was released, or acquired again since.

    Returns:
        The names that this call has released.

    Raises:
        BackendUnreachable: A server didn't take all of it back; `released` has what it took.
        LeaseError: The backend or the state directory failed; nothing has changed.
    """
    handle = service.handles.load(target.handle_id)
    if handle is None:
        return ()
    backend = service.backend_of(handle)
    if backend.remote:
        from leasectl.leases.release_remote import release_remote

        return release_remote(service, backend, handle, target)
    with backend.atomic():
        current = service.current(target)
        if current is None:
            give_up_lost(service, target)
            return ()
        wanted = current.names if target.names is None else target.names
        freed = _free(backend, current, wanted, by=target.by)
        if len(freed) < len(wanted):
            current = service.current(target)  # the backend may have found that some had expired
        if current is not None:
            service.handles.drop(current, wanted, now=service.clock.elapsed())
    unlist(service, handle, wanted)
    return freed


def finish(service: Service, handle: Handle, *, by: ReleasedBy = "command") -> tuple[str, ...]:
    """Release a handle that no command will use again, and forget it.

    A handle that was acquired again since is left as it is: it holds other leases now.

    Args:
        service: On its state directory.
        handle: The handle.
        by: What ends its leases, for the record of events.

    Returns:
        The names that this call has released.

    Raises:
        LeaseError: See `release`.
    """
    backend = service.backend_of(handle)
    if backend.remote:
        names = release(service, whole(handle, by=by))
        with service.state.transaction():
            service.handles.forget(handle.id, handle.acquisition)
        return names

    with backend.atomic():
        if handle.state == "held" and is_plain(service.state, handle):
            freed = tuple(backend.release(handle.id, handle.names, by=by))
            forget_plain(service.state, handle)
        else:
            freed = _finish_any(service, backend, handle, by=by)
    unlist(service, handle, handle.names)
    return freed


def _finish_any(
    service: Service, backend: Backend, handle: Handle, *, by: ReleasedBy
) -> tuple[str, ...]:
    current = service.current(whole(handle))
    freed = _free(backend, current, current.names, by=by) if current is not None else ()
    if current is None:
        give_up_lost(service, whole(handle))
    service.handles.forget(handle.id, handle.acquisition)
    return freed


def give_up_lost(service: Service, target: ReleaseTarget) -> None:
    """Tell a pool to free the leases that a holder lost by force: it has done with them.

    Args:
        service: On the state directory of the handle.
        target: Nothing happens if its handle still holds something, or was acquired again since.
    """
    handle = service.handles.load(target.handle_id)
    if handle is None or not handle.lost or handle.state != "released":
        return
    if whole(handle, by=target.by) == target:
        backend = service.backend_of(handle)
        with backend.atomic():
            list(backend.release(claim_key_of(handle), ()))


def _free(
    backend: Backend, handle: Handle, names: Sequence[str], *, by: ReleasedBy
) -> tuple[str, ...]:
    """Free what a handle holds of a pool of ours, or take it out of the queue."""
    if handle.state == "acquiring":
        from leasectl.engines.rules.events import why_withdrawn

        backend.withdraw(handle.id, why_withdrawn(by))
        return ()
    freed = tuple(backend.release(handle.id, names, by=by))
    if handle.lost and len(names) == len(handle.names):
        backend.release(handle.id, ())
    return freed
