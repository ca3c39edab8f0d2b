"""Let a name join a pool, perhaps already held.

To join and to be held is one step, past the queue and the pace, so no other holder gets a resource
that isn't ready. Like every grant it is recorded under a handle (`leasectl.leases.acquire`), which
lives no longer than this process until it is announced. If the process ends first, the name leaves
the pool with its lease: it is marked so when it comes, and `settle` removes the mark after the
announcement.

A server can't see the process for whose life a name has joined. There the membership has a ttl, and
this state directory's keeper renews it for as long as the process lives (`stay`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from leasectl.backends.contract import why_given_up
from leasectl.backends.kinds import Backend, claim_key_of
from leasectl.engines import refusals
from leasectl.engines.pool_admin import Members, Updated
from leasectl.engines.rules import membership
from leasectl.engines.rules.membership import Lifetime, Member, Pools
from leasectl.errors import BackendUnreachable, Interrupted, LeaseError
from leasectl.leases.acquire import announce, take_back, undo
from leasectl.leases.journal import RecordJournal
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.renew import renew
from leasectl.leases.request import check_ttl, new_handle
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request, whole
from leasectl.state import keeper_process
from leasectl.state.handles import new_id
from leasectl.state.watched import Stay, Stays


class JoinedAgain(NamedTuple):
    """What has joined again as held.

    Args:
        handle: By which it is held, as before.
        updated: What has become of it.
    """

    handle: Handle
    updated: Updated


class _HeldNoMore(Exception):
    """A name that was to join again as held isn't held any more."""


def lifetime(
    service: Service, *, ttl_seconds: float | None = None, process: Process | None = None
) -> Lifetime | None:
    """How long a name is to stay in its pool; None for good.

    Args:
        service: On the backend of the pool.
        ttl_seconds: For so long after it has joined last.
        process: As long as this lives.

    Raises:
        InvalidRequest: No store can keep that ttl.
    """
    if ttl_seconds is not None:
        check_ttl(ttl_seconds)
        return Lifetime(ttl_seconds=ttl_seconds)
    if process is None:
        return None
    return Lifetime(process, service.kind.default_ttl_seconds)


def join(service: Service, pool_type: str, name: str, *, lives: Lifetime | None) -> Updated:
    """Let a name join a pool; if it has already, its time begins again.

    Args:
        service: On the backend of the pool.
        pool_type: The pool.
        name: The name.
        lives: How long it stays; None for good.

    Raises:
        NotFound: No such type.
        NotAllowed: It is in another pool, or expected in one.
    """

    def joined(member: Member, pools: Pools) -> Member:
        return membership.join(member, pool_type, pools, lifetime=lives)

    updated = service.members.update([name], joined)
    _see_to_stay(service, pool_type, name, lives)
    return updated


def join_held(
    service: Service,
    pool_type: str,
    name: str,
    *,
    lives: Lifetime | None,
    guard: Process | None = None,
) -> Handle:
    """Let a name join a pool as held by a new handle; the caller then announces and settles it.

    Args:
        service: On the backend of the pool.
        pool_type: The pool.
        name: The name.
        lives: How long it stays; None for good.
        guard: The process whose death releases the handle.

    Raises:
        NotFound: No such type.
        NotAllowed: It is in another pool, or expected in one, or held.
        LeaseError: It couldn't be recorded. Nothing has changed.
    """

    def joined(member: Member, pools: Pools) -> Member:
        after = membership.join(member, pool_type, pools, lifetime=lives)
        return after._replace(leaves=member.pool != pool_type)

    handle = new_handle(service, Request(pool_type, name=name), new_id(pool_type))
    handle = handle._replace(guard=guard, joined=True)
    journal = RecordJournal(service, handle)
    backend, claimant = journal.open(), journal.claimant()
    try:
        with backend.atomic():
            journal.enqueuing()
            updated = backend.members.update([name], joined, claimant=claimant)
            journal.granted(updated.leases, pool_type=pool_type)
        _see_to_stay(service, pool_type, name, lives)
    except BaseException as reason:
        if backend.remote:
            _give_back(service, backend, journal, reason)
        raise
    return journal.handle


def hold(
    service: Service,
    pool_type: str,
    name: str,
    *,
    lives: Lifetime | None,
    guard: Process | None = None,
    tell: Callable[[Handle], object],
) -> Updated | None:
    """Let a name join a pool as held, or join again under the handle that holds it here.

    Until the caller knows the handle, the lease ends with this process, and the name leaves with
    it.

    Args:
        service: On the backend of the pool.
        pool_type: The pool.
        name: The name.
        lives: How long it stays; None for good.
        guard: See `join_held` and `join_again`.
        tell: Tells the caller of the handle.

    Returns:
        What has become of a name that has joined again; None if it has just joined.

    Raises:
        NotFound, NotAllowed, LeaseLost, LeaseError: See `join_held` and `join_again`. After an
            error, also of `tell`, nothing is held that wasn't held before.
    """
    again = join_again(service, pool_type, name, lives=lives, guard=guard)
    if again is not None:
        tell(again.handle)
        return again.updated
    handle = join_held(service, pool_type, name, lives=lives, guard=guard)
    try:
        tell(handle)
        announce(service, handle)
        settle(service, handle)
    except BaseException:
        take_back(service, handle)
        raise
    return None


def settle(service: Service, handle: Handle) -> None:
    """Keep a name in its pool when the handle that it has joined under is released.

    Args:
        service: On the backend of the pool.
        handle: As returned by `join_held`, and announced.

    Raises:
        LeaseError: That failed; the name leaves with its release.
    """

    def settled(member: Member, _: Pools) -> Member:
        is_ours = member.holder == handle.holder_identity
        return member._replace(leaves=False) if is_ours else member

    service.members.update(handle.names, settled)


def join_again(
    service: Service,
    pool_type: str,
    name: str,
    *,
    lives: Lifetime | None,
    guard: Process | None = None,
) -> JoinedAgain | None:
    """Renew the membership of a name that joined as held by a handle of this state directory.

    Args:
        service: On the backend of the pool.
        pool_type: The pool.
        name: The name.
        lives: How long it stays from now on; None for good.
        guard: The process whose death releases the handle from now on; None to keep the present
            one.

    Returns:
        The handle, which goes on, and the membership; None if no handle here holds it any more.

    Raises:
        NotFound, NotAllowed: See `join`.
        LeaseLost: The lease has gone since.
    """
    handle = service.handles.holding(name, prefer=service.is_here)
    if handle is None or not service.is_here(handle):
        return None
    if not handle.joined or handle.waiter is not None:
        return None

    def joined(member: Member, pools: Pools) -> Member:
        if member.holder is None:
            raise _HeldNoMore
        if member.holder != handle.holder_identity:
            raise refusals.held_by_another(name, member.holder)
        return membership.join(member, pool_type, pools, lifetime=lives)

    try:
        updated = service.members.update([name], joined)
    except _HeldNoMore:
        return None  # it has just been given back: nobody is to get it before it is ready
    _see_to_stay(service, pool_type, name, lives)
    renew(service, whole(handle))
    announce(service, handle, guard=guard, runner=handle.runner)
    return JoinedAgain(service.handles.require(handle.id), updated)


def _give_back(
    service: Service, backend: Backend, journal: RecordJournal, reason: BaseException
) -> None:
    """Undo a claim that a server may have made without an answer."""
    was_refused = isinstance(reason, LeaseError) and not isinstance(reason, BackendUnreachable)
    if not was_refused:
        try:
            list(backend.release(claim_key_of(journal.handle), ()))
        except (LeaseError, Interrupted):
            journal.to_undo()
    undo(service, journal, why=why_given_up(reason))


# As long as a process lives, on a server


def stay(members: Members, kept: Stay) -> bool:
    """Renew a membership for a process that lives; returns whether it still is as it joined."""
    return _update_if_same(members, kept, lambda each: each._replace(joined=each.joined + 1))


def end_stay(members: Members, kept: Stay) -> bool:
    """End a membership whose process has ended; returns whether it still was as it joined."""
    return _update_if_same(members, kept, membership.after_lifetime)


def leave(service: Service, pool_type: str, name: str) -> Updated:
    """Remove a name from a pool: at once if it is free, else with its release.

    A name in no pool has left already, so a machine that stops needn't know.

    Raises:
        NotFound: No such type, or it is in another pool.
    """

    def left(member: Member, pools: Pools) -> Member:
        if pool_type not in pools.types:
            raise refusals.no_pool(pool_type, sorted(pools.types))
        return member if member.pool is None else membership.leave(member, pool_type)

    release_abandoned(service)
    updated = service.members.update([name], left)
    forget_stay(service, name)
    return updated


def forget_stay(service: Service, name: str) -> None:
    """Stop the keeper's renewal of a membership."""
    if service.kind.remote:
        with service.state.transaction():
            Stays(service.state).forget(service.backend_url, name)


def _see_to_stay(service: Service, pool_type: str, name: str, lives: Lifetime | None) -> None:
    """Let the keeper renew a membership while its process lives, if it has one."""
    if not service.kind.remote:
        if lives is not None:  # whoever looks at the pool sees when it is over; somebody is to
            with service.state.transaction():
                keeper_process.wake(service.state)
        return
    if lives is None or lives.process is None or lives.ttl_seconds is None:
        forget_stay(service, name)
        return
    url, settings = service.backend_url, service.settings
    with service.state.transaction():
        kept = Stay(url, settings, name, pool_type, lives.process, lives.ttl_seconds)
        Stays(service.state).keep(kept)
        keeper_process.wake(service.state)


def _update_if_same(members: Members, kept: Stay, change: Callable[[Member], Member]) -> bool:
    """Change what is so of a name that is still there as it has joined."""
    lives = Lifetime(kept.process, kept.ttl_seconds)

    def changed(member: Member, _: Pools) -> Member:
        is_same = member.pool == kept.type and member.lifetime == lives
        return change(member) if is_same else member

    (before,), (after,), _ = members.update([kept.name], changed)
    return before != after
