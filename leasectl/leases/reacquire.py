"""Reacquire: release what a handle still holds and get the same again, under the same handle.

Where the leases are rows of our own database, both happen in the transaction that puts the request
in the queue. A server is asked for the release first and for the leases afterwards.
"""

from __future__ import annotations

from leasectl.backends.contract import Backend, Patience
from leasectl.errors import Cancelled, NotAllowed, NotFound
from leasectl.leases.acquire import acquire_here
from leasectl.leases.journal import RecordJournal
from leasectl.leases.release import release
from leasectl.leases.request import drawn
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.state import keeper_process
from leasectl.system.process import is_dead
from leasectl.text.naming import is_reserved


def reacquire(
    service: Service, handle_id: str, *, patience: Patience, start_delay_seconds: float = 0.0
) -> Handle:
    """Acquire the request of a handle again; the handle is then to be announced (`announce`).

    Args:
        service: On the state directory of the handle.
        handle_id: Which.
        patience: How long to wait.
        start_delay_seconds: As `acquire` has it.

    Raises:
        NotFound: No such handle, or its guard has ended.
        NotFound, InvalidRequest: The request is refused; the handle holds what it held.
        LeaseError: Nothing was had; the handle is released and can be reacquired later.
    """
    handle = service.handles.require(handle_id)
    if is_reserved(handle.request.type):
        raise NotAllowed(f"handle {handle_id} is of work that is done once; ask for that again")
    handle = handle._replace(request=drawn(handle.request))
    if is_dead(handle.guard):
        raise NotFound(f"handle {handle_id}: its guard has ended, so it can't hold anything")
    backend = service.backend_of(handle)
    if backend.remote:
        return _reacquire_remote(service, backend, handle, patience, start_delay_seconds)

    def give_back(current: Handle) -> None:
        backend.withdraw(current.id)
        backend.release(current.id, current.names)
        if current.lost:
            backend.release(current.id, ())  # what was taken away by force

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

    release(service, whole(handle))

    def check(current: Handle) -> None:
        if current.acquisition != handle.acquisition:
            raise Cancelled(f"handle {current.id} was acquired again by somebody else")

    journal = RecordJournal(service, handle, again=check, start_delay_seconds=start_delay_seconds)
    if journal.needs_keeper:
        keeper_process.ensure(service.state)
    return acquire_remote(service, backend, journal, patience)
