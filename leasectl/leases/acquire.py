"""Acquire leases under a handle, anew or again.

However a request reaches its leases, its record goes through the same states (`RecordJournal` makes
each step, ``docs/dev/lease-states.md`` lists them), and `announce` or `undo` ends it:

=============  ================================  ==================================================
the record     what has happened                 when its process is killed then
=============  ================================  ==================================================
none           nothing                           nothing is left
``acquiring``  the request may be in a queue,    another waiter here takes the ticket away, or the
               and some names have arrived       keeper does; the keeper gives back what arrived
granted        ``held``, with a waiter           the same, with all leases
announced      ``held``, without a waiter        the leases stay; the death of a guard or of a
                                                 `run` releases them
=============  ================================  ==================================================

Where the leases are rows of our own database, the request, the grant and the record change in the
same transactions. A server grants first, and a grant is recorded as soon as it arrives. If the
acquisition then fails, what has arrived is given back, at once or by the keeper.

To reacquire is to release first. In our own database that is part of the transaction that puts the
request in the queue. A server is asked for the release first. If another process is acquiring the
same handle there, it is asked to give up, and this one waits for it: what it has been granted is
recorded under its own number only, and it gives that back itself.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.contract import Patience, Withdrawn, why_given_up
from leasectl.backends.kinds import Backend, pools_of
from leasectl.errors import (
    BackendUnreachable,
    Cancelled,
    Interrupted,
    InvalidRequest,
    LeaseError,
    LeaseLost,
    NoLease,
    NotAllowed,
    NotFound,
)
from leasectl.leases import recovery
from leasectl.leases.journal import RecordJournal
from leasectl.leases.release import finish, is_acquired_by_another, release
from leasectl.leases.request import count_whole_pool, drawn, new_handle
from leasectl.leases.service import Service, enlist, unlist
from leasectl.model import Handle, Process, Request, whole
from leasectl.state import keeper_process
from leasectl.state.handles import new_id, renews_itself
from leasectl.state.named_pipe import is_read, listen
from leasectl.state.pipes import tidy
from leasectl.state.rows import FIRST_DRAWN
from leasectl.system.poll import READABLE, Interrupt, sleep
from leasectl.system.process import is_dead, this_process
from leasectl.text.naming import is_reserved
from leasectl.text.wording import listed

if TYPE_CHECKING:
    from leasectl.engines.facts import Resource
    from leasectl.system.poll import Sleep

# Enough random bytes for unique ids that are still easy to read.
_DRAWN_BYTES = 4
_LOOK_AGAIN_SECONDS = 0.05
_TELL_AFTER_SECONDS = 2.0


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
    handle = handle._replace(guard=guard, runner=runner)
    journal = RecordJournal(service, handle, start_delay_seconds=start_delay_seconds, listed=listed)
    return _acquire(service, journal, patience)


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
            f"handle {handle_id} belongs to a leasectl once command, and can't be reacquired; use: "
            "leasectl once KEY -- CMD"
        )
    if is_dead(handle.guard):
        raise NotFound(f"the guard of handle {handle_id} has ended, so it can't hold a lease")
    there = service.at_backend_of(handle)
    handle = handle._replace(request=drawn(count_whole_pool(there, handle.request)))
    refuse_to_wait_for_callers(there, handle.request, patience, but=handle_id)
    backend = service.backend_of(handle)
    if backend.remote:
        patience = _release_before(service, handle, patience)

    def give_back(current: Handle) -> None:
        if not backend.remote:
            backend.withdraw(current.id)
            backend.release(current.id, ())
        elif current.acquisition != handle.acquisition:
            raise Cancelled(f"handle {current.id} was acquired again by another process")

    journal = RecordJournal(
        service, handle, again=give_back, start_delay_seconds=start_delay_seconds
    )
    return _acquire(service, journal, patience)


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
    journal = _served_journal(service, request, handle_id, guard, holder_identity)
    backend = journal.open()
    try:
        if not backend.remote:
            patience = heedful(service, journal.handle, patience)._replace(
                # It has a keeper anyway, and would need a descriptor for each of thousands to watch
                see_to_witness=lambda: _witness(service) and this_process()
            )
        yield from backend.turn(journal.claimant(), journal, patience)
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
    return _acquire(service, _served_journal(service, request, handle_id, guard), patience)


def _served_journal(
    service: Service,
    request: Request,
    handle_id: str,
    guard: Process | None,
    holder_identity: str = "",
) -> RecordJournal:
    """Return the journal for a client of a server, with a random first acquisition number.

    A late request for an earlier handle of that id must not meet this one, and no record is left
    that says how far that one had counted.
    """
    acquisition = FIRST_DRAWN | int.from_bytes(os.urandom(_DRAWN_BYTES), "big")
    handle = new_handle(service, request, handle_id)._replace(
        served=True, acquisition=acquisition, guard=guard
    )
    if holder_identity:
        owner = holder_identity.rsplit("/", 2)[0]
        handle = handle._replace(owner=owner, holder_identity=holder_identity)
    return RecordJournal(service, handle, listed=False)


def _acquire(service: Service, journal: RecordJournal, patience: Patience) -> Handle:
    """Go from a request to a grant that is listed where scope ``test`` wants it.

    Raises:
        Cancelled: The handle was released.
        BackendUnreachable: Its queue position was lost, and no process here has withdrawn it.
        LeaseError: See `acquire`.
    """
    before, backend = journal.handle, journal.open()
    try:
        if backend.remote:
            _wait_for_server(service, backend, journal, patience)
        else:
            patience = heedful(service, before, patience)
            patience = patience._replace(at_first_sleep=service.state.until_removed)
            backend.acquire(journal.claimant(), journal, patience)
    finally:
        unlist(service, before, before.names)  # given back by this acquisition, or before it
    held = journal.handle
    try:
        if backend.remote and held.request.ttl_seconds is not None and not renews_itself(held):
            # It counts from the last sign of life in the queue, and no process renews it.
            from leasectl.leases.renew import renew

            held = renew(service, whole(held))
        enlist(service, held)
    except LeaseError as reason:
        undo(service, journal, why=why_given_up(reason))  # no later step would ever release it
        raise
    return held


def _wait_for_server(
    service: Service, backend: Backend, journal: RecordJournal, patience: Patience
) -> None:
    """Acquire from a server, unless the handle is released meanwhile."""
    claimant = journal.claimant()
    tidy(service.state)
    # A server's clients all wait in one process, and a user has few inotify instances.
    until_removed = () if journal.handle.served else service.state.until_removed()
    pipe = listen(service.state.cancel_pipe(journal.handle.id, claimant.acquisition))

    def check() -> None:
        pipe.renew()
        record = service.handles.current(journal.handle.id, claimant.acquisition)
        if record is None or record.cancelled:
            raise Cancelled(f"{journal.handle.id} was released while it waited")

    interrupt = Interrupt(pipe.fd, READABLE, check)
    interrupts = (*patience.interrupts, interrupt, *until_removed)
    try:
        backend.acquire(claimant, journal, patience._replace(interrupts=interrupts))
    except BaseException as reason:
        is_withdrawn = isinstance(reason, Withdrawn) and not reason.is_on_purpose
        has_lost_place = is_withdrawn and not journal.was_cancelled
        undo(service, journal, why=why_given_up(reason))
        if has_lost_place:
            wanted = pools_of(journal.handle.request)
            raise BackendUnreachable(
                f"{wanted}: {backend.url} ended the waiting request; try again"
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
            raise _why_not_announced(service, handle)
        if guard is not None:
            keeper_process.wake(service.state)


def _why_not_announced(service: Service, handle: Handle) -> LeaseError:
    record = service.handles.load(handle.id)
    if record is None or not record.lost or record.acquisition != handle.acquisition:
        return released_before_use(handle)
    why = f" ({record.lost_reason})" if record.lost_reason else ""
    pools = handle.type or pools_of(handle.request)
    return LeaseLost(f"the lease of {pools} was lost{why} before it could be used")


def released_before_use(handle: Handle) -> Cancelled:
    """Return the error for a handle that was released before its acquirer could use it."""
    return Cancelled(f"handle {handle.id} was released before it could be used")


def take_back(service: Service, handle: Handle) -> None:
    """Undo a grant that can't be announced. A handle that was known before can be reacquired later.

    Raises:
        LeaseError: See `release`.
    """
    if handle.acquisition == 1:
        finish(service, handle)
    else:
        release(service, whole(handle))


def _release_before(service: Service, handle: Handle, patience: Patience) -> Patience:
    """Release what a handle has on a server, and return what is left of the patience then.

    If another process is acquiring the same handle, wait until it has given up.

    Raises:
        NoLease: It hasn't in time; it may be stopped.
    """
    release(service, whole(handle))
    clock, wait = service.clock, patience.wait_seconds
    begin = clock.elapsed()
    tell_at, interrupts = begin + _TELL_AFTER_SECONDS, patience.interrupts
    is_watching = False
    while True:
        now = clock.elapsed()
        other = service.handles.current(handle.id, handle.acquisition)
        if other is None or not is_acquired_by_another(other):
            break
        pid = other.waiter.pid if other.waiter is not None else 0
        if wait is not None and now - begin >= wait:
            raise NoLease(f"handle {handle.id} is still being acquired by process {pid}")
        if now >= tell_at:
            tell_at = math.inf
            patience.warn(f"waiting for pid {pid} to give up acquiring {handle.id}")
        if not is_watching:
            is_watching, interrupts = True, (*interrupts, *service.state.until_removed())
        sleep(interrupts=interrupts, until=now + _LOOK_AGAIN_SECONDS, now=clock.elapsed)
    if not is_watching:
        return patience
    release(service, whole(handle))  # what the other process was granted, also if it was killed
    left = None if wait is None else max(0.0, wait - (now - begin))
    return patience._replace(wait_seconds=left)


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
        if len(usable) - len(held) < request.count <= len(usable):
            blocking += held
        elif not request.needs_all:
            return
    if not blocking:
        return
    names = listed([each.name for each in blocking])
    raise InvalidRequest(
        f"a leasectl command around this one holds {names}, so waiting would never end; take all "
        "at once with --count or --each, or release that lease first"
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
