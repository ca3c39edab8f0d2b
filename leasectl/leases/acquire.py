"""Acquire leases under a new handle.

Where the leases are rows of our own database, the request, the grant and the record change in the
same transactions, and this module does all of it. `acquire_remote` acquires from a server, and
`reacquire` acquires the same again under an old handle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import Backend
from leasectl.errors import InvalidRequest, LeaseError, NotFound
from leasectl.leases import recovery
from leasectl.leases.journal import RecordJournal
from leasectl.leases.request import (
    claimant_of,
    count_whole_pool,
    give_up_unlisted,
    new_handle,
)
from leasectl.leases.service import Service, enlist, unlist
from leasectl.model import Handle, Process, Request
from leasectl.state import keeper_process
from leasectl.state.handles import new_id
from leasectl.state.named_pipe import is_read
from leasectl.system.process import this_process
from leasectl.text.naming import is_reserved
from leasectl.text.wording import listed

if TYPE_CHECKING:
    from leasectl.engines.facts import Resource
    from leasectl.system.poll import Sleep

# Enough random bytes for unique ids that are still easy to read.
_DRAWN_BYTES = 4


def acquire(
    service: Service,
    request: Request,
    *,
    patience: Patience,
    guard: Process | None = None,
    followed: bool = False,
    start_delay_seconds: float = 0.0,
    called: str = "",
    handle_id: str = "",
    listed: bool = False,
) -> Handle:
    """Acquire leases under a new handle, which the caller then announces (`announce`).

    Args:
        service: On the backend that they come from.
        request: What is wanted.
        patience: How long to wait.
        guard: The process whose death releases the handle.
        followed: This process is the `run` that a guard will follow; until the handle is announced
            with that guard, the keeper watches this process.
        start_delay_seconds: How long this process will hold and renew the leases before it
            announces them; a delayed release counts from then on.
        called: A prefix for the handle's id; empty for the type.
        handle_id: The whole id, if the caller has drawn it (`new_id`).
        listed: See `RecordJournal`.

    Raises:
        LeaseError: No lease was acquired, and nothing has changed.
    """
    request = count_whole_pool(service, request)
    refuse_to_wait_for_callers(service, request, patience)
    handle = new_handle(service, request, handle_id or new_id(called or request.type))
    runner = this_process() if followed or start_delay_seconds else None
    if guard is not None or runner is not None:
        handle = handle._replace(guard=guard, runner=runner)
    backend = service.backend_of(handle)  # may take long; an idle keeper would end meanwhile
    journal = RecordJournal(
        service,
        handle,
        start_delay_seconds=start_delay_seconds,
        listed=listed,
    )
    if journal.needs_keeper:
        keeper_process.ensure(service.state)
    if backend.remote:
        from leasectl.leases.acquire_remote import acquire_remote

        return acquire_remote(service, backend, journal, patience)
    return acquire_here(service, backend, journal, patience)


def refuse_to_wait_for_callers(
    service: Service, request: Request, patience: Patience, *, but: str = ""
) -> None:
    """Refuse a wait for a lease that only a command around this process can release.

    That command waits for this process, so neither would ever go on. A lease that goes back by
    itself while the command works doesn't count.

    Args:
        service: On the backend that the leases come from.
        request: What is wanted.
        patience: A request that doesn't wait isn't refused.
        but: A handle that gives back what it has first.

    Raises:
        InvalidRequest: It would wait for its own callers.
    """
    around = frozenset(service.caller.around) - {but}
    if not around or patience.wait_seconds == 0 or is_reserved(request.type):
        return
    if not service.kind.has_pools:
        return
    from leasectl.engines.rules.possible import usable_in

    blocking: list[Resource] = []
    for pool_type in request.types:
        try:
            (pool,) = service.pools.pools(pool_type)
        except NotFound:
            return  # refused elsewhere with its own message
        usable = usable_in(pool, request)
        held = [each for each in usable if _is_kept_by(service, each, around)]
        if not len(usable) - len(held) < request.count <= len(usable):
            return
        blocking += held
    names = listed([each.name for each in blocking])
    raise InvalidRequest(
        f"{names}: held by the command that this one runs under, so waiting would never end; take "
        "all at once with --count, or release that lease first"
    )


def _is_kept_by(service: Service, resource: Resource, around: frozenset[str]) -> bool:
    """Return whether a handle around us holds a resource until its command ends."""
    handle_id = (resource.claim_key or "").partition("/")[0]
    if handle_id not in around or resource.ended is not None:
        return False
    handle = service.handles.load(handle_id)
    if handle is None:
        return resource.release_after_seconds is None
    return handle.release_at is None


def acquire_here(
    service: Service, backend: Backend, journal: RecordJournal, patience: Patience
) -> Handle:
    """Acquire from a backend that shares the transactions of the records.

    Args:
        service: On the state directory of the record.
        backend: The handle's.
        journal: Of the acquisition; its handle is the record that it creates or updates.
        patience: How long to wait.

    Raises:
        LeaseError: See `acquire`.
    """
    before = journal.handle
    try:
        heeding = heedful(service, before, patience)
        heeding = heeding._replace(at_first_sleep=service.state.until_removed)
        backend.acquire(claimant_of(journal), journal, heeding)
    finally:
        unlist(service, before, before.names)  # given back by this acquisition
    try:
        enlist(service, journal.handle)
    except LeaseError:
        give_up_unlisted(service, journal)
        raise
    return journal.handle


def turn(
    service: Service,
    request: Request,
    *,
    handle_id: str,
    patience: Patience,
    guard: Process | None = None,
    holder_identity: str = "",
) -> Generator[Sleep, set[int], Handle]:
    """Acquire as a generator of sleeps, for a server process that waits for thousands of clients.

    Requests have scope ``step``.

    Args:
        service: On the backend that the leases come from.
        request: What is wanted.
        handle_id: The id of the new handle, which an earlier one may have had; there must be no
            record of it.
        patience: How long to wait; the driver of the generator handles interrupts.
        guard: The process whose death releases the handle.
        holder_identity: Of the client, if it has told; else the server's is used.

    Raises:
        NotSupported: The backend can only block.
        LeaseError: See `acquire`.
    """
    backend, journal = _begin_served(service, request, handle_id, guard, holder_identity)
    try:
        if not backend.remote:
            patience = heedful(service, journal.handle, patience)._replace(
                # It has a keeper anyway, and would need a descriptor for each of thousands to watch
                see_to_witness=lambda: _witness(service) and this_process()
            )
        yield from backend.turn(claimant_of(journal), journal, patience)
    finally:
        if journal.unsettled:
            journal.leave_to_keeper()
    return journal.handle


def acquire_served(
    service: Service,
    request: Request,
    *,
    handle_id: str,
    patience: Patience,
    guard: Process | None = None,
) -> Handle:
    """Acquire from another server for a client of a server of ours, in a thread for each wait.

    Requests have scope ``step``. The id may be that of an earlier handle with the same request. The
    server behind us must see another claimant all the same, so the acquisitions of this one don't
    begin with 1.

    Args:
        service: On the backend that the leases come from, opened by this thread.
        request: What is wanted.
        handle_id: The id of the new handle; there must be no record of it.
        patience: How long to wait.
        guard: The process whose death releases the handle.

    Raises:
        LeaseError: See `acquire`.
    """
    from leasectl.leases.acquire_remote import acquire_remote

    return acquire_remote(service, *_begin_served(service, request, handle_id, guard), patience)


def _begin_served(
    service: Service,
    request: Request,
    handle_id: str,
    guard: Process | None,
    holder_identity: str = "",
) -> tuple[Backend, RecordJournal]:
    """Begin a handle for a client of a server, with a random first acquisition number.

    A late request for an earlier handle of that id must not meet this one, and no record is left
    that says how far that one had counted.
    """
    acquisition = int.from_bytes(os.urandom(_DRAWN_BYTES), "big")
    handle = new_handle(service, request, handle_id)._replace(
        served=True, acquisition=acquisition, guard=guard
    )
    if holder_identity:
        owner = holder_identity.rsplit("/", 2)[0]
        handle = handle._replace(owner=owner, holder_identity=holder_identity)
    backend = service.backend_of(handle)
    journal = RecordJournal(service, handle, listed=False)
    if journal.needs_keeper:
        keeper_process.ensure(service.state)
    return backend, journal


def heedful(service: Service, handle: Handle, patience: Patience) -> Patience:
    """Return patience that also watches for dead holders and for waiters that don't claim."""
    types = handle.request.types
    return patience._replace(
        watched=lambda: _watched_at_head(service, types),
        recover=lambda: recovery.recover(service),
        see_to_witness=lambda: _witness(service),
    )


def _witness(service: Service) -> Process | None:
    """Ask the keeper to look at the waiters, and return it; start it if there is none."""
    with contextlib.suppress(LeaseError):
        keeper_process.ensure(service.state)
    is_read(service.state.witness_pipe)
    return keeper_process.running(service.state)


def _watched_at_head(service: Service, types: Sequence[str]) -> list[Process]:
    """Return the processes whose end may free something for the head of some queues.

    Those are the processes with a grant that they haven't announced, and the keeper, which frees
    the leases of other dead processes.
    """
    granted = service.handles.unannounced(*types)
    waiters = [handle.waiter for handle in granted if handle.waiter is not None]
    # Also a keeper without work yet: a process that gives it some wakes only the keeper.
    keeper = keeper_process.registered(service.state)
    return waiters if keeper is None else [*waiters, keeper]
