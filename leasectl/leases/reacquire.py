"""Release what a handle holds and acquire the same again.

Where the leases are rows of our own database, both happen in the transaction that puts the request
in the queue. A server is asked for the release first and for the leases afterwards. If another
process is acquiring the same handle there, it is asked to give up, and this one waits for it: what
it has been granted is recorded under its own number only, and it gives that back itself.
"""

from __future__ import annotations

import math

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import Backend
from leasectl.errors import Cancelled, NoLease, NotAllowed, NotFound
from leasectl.leases.acquire import acquire_here, refuse_to_wait_for_callers
from leasectl.leases.journal import RecordJournal
from leasectl.leases.release import release
from leasectl.leases.request import count_whole_pool, drawn
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.state import keeper_process
from leasectl.system.poll import sleep
from leasectl.system.process import is_dead
from leasectl.text.naming import is_reserved

_LOOK_AGAIN_SECONDS = 0.05
_TELL_AFTER_SECONDS = 2.0


def reacquire(
    service: Service, handle_id: str, *, patience: Patience, start_delay_seconds: float = 0.0
) -> Handle:
    """Acquire the request of a handle again; the caller then announces it (`announce`).

    Args:
        service: On the state directory of the handle.
        handle_id: Of the handle.
        patience: How long to wait.
        start_delay_seconds: See `acquire`.

    Raises:
        NotFound: No such handle, or its guard has ended.
        NotFound, InvalidRequest: The request is refused; the handle holds what it held.
        LeaseError: No lease was acquired; the handle is released and can be reacquired later.
    """
    handle = service.handles.require(handle_id)
    if is_reserved(handle.request.type):
        raise NotAllowed(
            f"handle {handle_id} belongs to leasectl once; run leasectl once again instead"
        )
    if is_dead(handle.guard):
        raise NotFound(f"handle {handle_id}: its guard has ended, so it can't hold anything")
    there = service.at_backend_of(handle)
    handle = handle._replace(request=drawn(count_whole_pool(there, handle.request)))
    refuse_to_wait_for_callers(there, handle.request, patience, but=handle_id)
    backend = service.backend_of(handle)
    if backend.remote:
        return _reacquire_remote(service, backend, handle, patience, start_delay_seconds)

    def give_back(current: Handle) -> None:
        backend.withdraw(current.id)
        backend.release(current.id, current.names)
        if current.lost:
            backend.release(current.id, ())  # the leases that were taken by force

    journal = RecordJournal(
        service, handle, again=give_back, start_delay_seconds=start_delay_seconds
    )
    if journal.needs_keeper:
        keeper_process.ensure(service.state)
    return acquire_here(service, backend, journal, patience)


def _reacquire_remote(
    service: Service,
    backend: Backend,
    handle: Handle,
    patience: Patience,
    start_delay_seconds: float,
) -> Handle:
    from leasectl.leases.acquire_remote import acquire_remote
    from leasectl.leases.release_remote import is_acquired_by_another

    release(service, whole(handle))
    other = service.handles.current(handle.id, handle.acquisition)
    if other is not None and is_acquired_by_another(other):
        patience = _wait_for_another(service, handle, patience)
        release(service, whole(handle))  # what the other process was granted, also if it was killed

    def check(current: Handle) -> None:
        if current.acquisition != handle.acquisition:
            raise Cancelled(f"handle {current.id} was acquired again by another process")

    journal = RecordJournal(service, handle, again=check, start_delay_seconds=start_delay_seconds)
    if journal.needs_keeper:
        keeper_process.ensure(service.state)
    return acquire_remote(service, backend, journal, patience)


def _wait_for_another(service: Service, handle: Handle, patience: Patience) -> Patience:
    """Wait until another process has given up acquiring the same handle on a server.

    Returns:
        What is left of the patience.

    Raises:
        NoLease: It hasn't in time; it may be stopped.
    """
    from leasectl.leases.release_remote import is_acquired_by_another

    clock, wait = service.clock, patience.wait_seconds
    begin = clock.elapsed()
    told_at = begin + _TELL_AFTER_SECONDS
    interrupts = (*patience.interrupts, *service.state.until_removed())
    while True:
        now = clock.elapsed()
        current = service.handles.current(handle.id, handle.acquisition)
        if current is None or not is_acquired_by_another(current):
            left = None if wait is None else max(0.0, wait - (now - begin))
            return patience._replace(wait_seconds=left)
        pid = current.waiter.pid if current.waiter is not None else 0
        if wait is not None and now - begin >= wait:
            raise NoLease(f"handle {handle.id} is still being acquired by process {pid}")
        if now >= told_at:
            told_at = math.inf
            patience.warn(f"waiting for pid {pid} to give up acquiring {handle.id}")
        sleep(
            wake_fds=(),
            interrupts=interrupts,
            until=now + _LOOK_AGAIN_SECONDS,
            now=clock.elapsed,
        )
