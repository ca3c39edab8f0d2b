"""Acquire from a server, where grant and record aren't one transaction.

A grant is recorded as soon as it arrives. If the acquisition then fails, what has arrived is given
back, at once or by the keeper.
"""

from __future__ import annotations

from leasectl.backends.contract import Patience, Withdrawn, why_given_up
from leasectl.backends.kinds import Backend, either
from leasectl.errors import BackendUnreachable, Cancelled, Interrupted, LeaseError
from leasectl.leases.journal import RecordJournal
from leasectl.leases.release import release
from leasectl.leases.renew import renew
from leasectl.leases.request import claimant_of, give_up_unlisted
from leasectl.leases.service import Service, enlist, unlist
from leasectl.model import Handle, whole
from leasectl.state.handles import renews_itself
from leasectl.state.named_pipe import listen
from leasectl.state.pipes import tidy
from leasectl.system.poll import READABLE, Interrupt


def acquire_remote(
    service: Service, backend: Backend, journal: RecordJournal, patience: Patience
) -> Handle:
    """Acquire, unless the handle is released meanwhile.

    Args:
        service: On the state directory of the record.
        backend: The handle's.
        journal: Of the acquisition; its handle is the record that it creates or updates.
        patience: How long to wait.

    Raises:
        Cancelled: The handle was released.
        BackendUnreachable: Its queue position was lost, and no process here has withdrawn it.
        LeaseError: See `acquire`.
    """
    before = journal.handle
    try:
        _wait_for_grant(service, backend, journal, patience)
    finally:
        unlist(service, before, before.names)  # given back before this acquisition
    held = journal.handle
    try:
        if held.request.ttl_seconds is not None and not renews_itself(held):
            # It counts from the last sign of life in the queue, and no process renews it.
            held = renew(service, whole(held))
        enlist(service, held)
    except LeaseError:
        give_up_unlisted(service, journal)
        raise
    return held


def _wait_for_grant(
    service: Service, backend: Backend, journal: RecordJournal, patience: Patience
) -> None:
    acquisition = journal.next_acquisition
    tidy(service.state)
    # A server's clients all wait in one process, and a user has few inotify instances.
    until_removed = () if journal.handle.served else service.state.until_removed()
    pipe = listen(service.state.cancel_pipe(journal.handle.id, acquisition))

    def check() -> None:
        pipe.renew()
        record = service.handles.current(journal.handle.id, acquisition)
        if record is None or record.cancelled:
            raise Cancelled(f"{journal.handle.id} was released while it waited")

    interrupt = Interrupt(pipe.fd, READABLE, check)
    interrupts = (*patience.interrupts, interrupt, *until_removed)
    patience = patience._replace(interrupts=interrupts)
    try:
        backend.acquire(claimant_of(journal), journal, patience)
    except BaseException as reason:
        is_withdrawn = isinstance(reason, Withdrawn) and not reason.is_on_purpose
        has_lost_place = is_withdrawn and not journal.was_cancelled
        undo(service, journal, why=why_given_up(reason))
        if has_lost_place:
            raise BackendUnreachable(
                f"{either(journal.handle.request.types)}: {backend.url} ended the waiting "
                "request; try again"
            ) from reason
        raise
    finally:
        pipe.close()


def undo(service: Service, journal: RecordJournal, *, why: str) -> None:
    """Give back what has arrived, now or later.

    Args:
        service: On the state directory of the record.
        journal: Of the acquisition that failed.
        why: For people, for the record of events.
    """
    try:
        release(service, whole(journal.handle))
    except (LeaseError, Interrupted):
        journal.unsettled = True
    if journal.unsettled:
        journal.leave_to_keeper(why)
    else:
        journal.gave_up(why)
