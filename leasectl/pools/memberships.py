"""Move, cordon and expect names; warn about requests that become impossible."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.facts import Pool, QueueEntry
from leasectl.engines.pool_admin import Updated
from leasectl.engines.rules import membership
from leasectl.engines.rules.membership import Member, Pools
from leasectl.engines.rules.possible import Unmet, unmet
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotFound
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.release_forced import Forced, check_reason, release_by_force
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.pools import expectations
from leasectl.pools.settings import grace_of
from leasectl.text.wording import followed_by, listed


class UnmetWaiter(NamedTuple):
    """A request that waits for what a pool can't give it now.

    Args:
        entry: Its place in the queue.
        why: What the pool has instead.
    """

    entry: QueueEntry
    why: Unmet


def unmet_waiters(pool: Pool) -> tuple[UnmetWaiter, ...]:
    """Those who wait in a pool for what it can't give them, in the order of the queue."""
    # Of what nothing is said, all that is known is that it is there.
    members = [each.member or Member(each.name, pool.type) for each in pool.resources]
    found = ((each, unmet(_request(pool.type, each), members)) for each in pool.queue)
    return tuple(UnmetWaiter(entry, why) for entry, why in found if why is not None)


def described(each: UnmetWaiter) -> str:
    """Say whose request that is, and why it can't be met, for people."""
    return f"the request of {each.entry.holder_identity} keeps waiting: {each.why}"


def _request(pool_type: str, entry: QueueEntry) -> Request:
    return Request(pool_type, count=entry.count, name=entry.name, where=entry.where)


class Moved(NamedTuple):
    """The outcome of a move, as names.

    Args:
        moved: Those that are in the pool now.
        waiting: Those that move with their release.
        kept: Those that were to move elsewhere, and stay in the pool.
        there: Those that were in the pool already.
    """

    moved: list[str]
    waiting: list[str]
    kept: list[str]
    there: list[str]


def move(service: Service, names: Sequence[str], to: str, *, when_free: bool) -> Updated:
    """Move names to another pool: at once, or with their release if that is allowed.

    Raises:
        NotFound: No such type, or a name is in no pool.
        NotAllowed: A name is expected in another pool, or is held. If the store couldn't move
            all of them in one step, the error says which were moved.
    """
    release_abandoned(service)
    before = service.members.members(names)

    def to_move(member: Member, pools: Pools) -> Member:
        return membership.move(member, to, pools, when_free=when_free)

    try:
        return service.members.update(names, to_move)
    except BackendUnreachable as error:  # what refuses one says itself what is done
        if len(names) > 1:
            _add_what_moved(service, error, before, to)
        raise


def outcome_of_move(updated: Updated, to: str) -> Moved:
    """Return what has become of the names that `move` was given."""
    pairs = list(zip(updated.before, updated.after))
    kept = [new.name for old, new in pairs if membership.stays_after_all(old, new)]
    return Moved(
        [new.name for old, new in pairs if new.pool != old.pool],
        [new.name for _, new in pairs if new.moves_to == to],
        kept,
        [n.name for old, n in pairs if n.pool == old.pool == to and n.name not in kept],
    )


def _add_what_moved(service: Service, error: LeaseError, before: Sequence[Member], to: str) -> None:
    """Add to an error what has been moved all the same."""
    try:
        after = service.members.members([each.name for each in before])
    except LeaseError:
        return  # the server is gone
    pairs = zip(before, after)
    moved = [new.name for old, new in pairs if new != old and to in (new.pool, new.moves_to)]
    if moved:
        error.args = (followed_by(error, f"already moved: {listed(moved)}"),)


def remove(service: Service, pool_type: str, names: Sequence[str], *, force: bool = False) -> None:
    """Remove names from a pool: all, or none.

    Raises:
        NotFound: No such type, or a name isn't in the pool.
        NotAllowed: One is held, and it isn't forced.
    """
    service.pools.pools(pool_type)  # which says why there is none
    service.members.update(names, lambda m, _: membership.remove(m, pool_type, force=force))


def remove_by_force(service: Service, pool_type: str, names: Sequence[str]) -> list[Forced]:
    """Remove names from a pool: free ones at once, the others with their release.

    Their leases are ended as by `release_by_force`. So if such a name is added again, it isn't
    granted while a `run` is still ending its command. Nothing is known of a holder that didn't
    get its lease from leasectl, so its name is removed at once.

    Returns:
        The leases that were ended now, and those that were ended before and are still kept.

    Raises:
        NotFound: No such type, or a name isn't in the pool; nothing has changed.
    """
    release_abandoned(service)
    (pool,) = service.pools.pools(pool_type)
    foreign = {r.name for r in pool.resources if r.lease is not None and r.claim_key is None}

    def removed(member: Member, _: Pools) -> Member:
        if member.name in foreign:
            return membership.remove(member, pool_type, force=True)
        return membership.leave(member, pool_type)

    with service.atomic():
        after = service.members.update(names, removed).after
        forced: list[Forced] = []
        reason = f"removed from pool {pool_type}"
        for each in after:
            if each.holder is not None:
                with contextlib.suppress(NotFound):  # released, and so removed, since
                    forced += release_by_force(service, [each.name], reason=reason)
        return forced


def cordon(
    service: Service, names: Sequence[str], *, is_cordoned: bool, reason: str = ""
) -> Updated:
    """Cordon names, so that they take no new holder, or uncordon them.

    Args:
        names: The names.
        is_cordoned: Whether to cordon them.
        reason: Why, to show to people.

    Raises:
        NotFound: One is in no pool; nothing has changed.
        InvalidRequest: The reason isn't one printable line.
    """
    why = membership.Cordon(service.caller.identity, service.clock.wall(), check_reason(reason))
    cordon = partial(membership.cordon, is_cordoned=is_cordoned, why=why)
    return service.members.update(names, lambda member, _: cordon(member))


def expect(
    service: Service, pool_type: str, names: Sequence[str], patterns: Sequence[str]
) -> Updated:
    """Expect names, and all names that match patterns, in a pool.

    Names that came to the default pool by default move there: free ones at once, held ones
    with their release.

    Returns:
        The given names, then those that the patterns move.

    Raises:
        NotFound: The pool doesn't exist.
        NotAllowed: A name is in another pool, is to move to one, or is expected in one.
    """
    with service.atomic():
        return expectations.expect(service.members, pool_type, names, patterns)


def drop(service: Service, pool_type: str, names: Sequence[str], patterns: Sequence[str]) -> None:
    """Remove the expected pool of names and patterns; they stay where they are.

    Raises:
        NotFound: One has no expected pool.
    """
    with service.atomic():
        expectations.drop(service.members, pool_type, names, patterns)


def change_default(
    service: Service,
    pool_type: str,
    *,
    is_default: bool | None = True,
    grace_seconds: float | None = None,
) -> tuple[Pools, Pools]:
    """Make a pool the default pool or not, or change its grace; return how it was and is.

    Args:
        pool_type: The pool.
        is_default: Whether it is to be the default pool; None if it is, and only the grace changes.
        grace_seconds: How long it holds new names back; None for the present time, or the usual
            one.

    Raises:
        NotFound: No such type.
        InvalidRequest: Another pool is the default, or none, and only the grace changes.
    """
    seen: list[tuple[Pools, Pools]] = []

    def changed(pools: Pools) -> Pools:
        if is_default is False and pools.default != pool_type:
            if pool_type not in pools.types:
                raise refusals.no_pool(pool_type, sorted(pools.types))
            return pools
        if is_default is False:
            return membership.set_default(pools, None, 0.0)
        if is_default is None and pools.default != pool_type:
            raise InvalidRequest(
                f'pool "{pool_type}" isn\'t the default pool, so --grace has no effect; '
                "add --default"
            )
        return membership.set_default(pools, pool_type, grace_of(pools, pool_type, grace_seconds))

    def noting(pools: Pools) -> Pools:
        seen.append((pools, changed(pools)))
        return seen[-1][1]

    service.members.change_belonging(noting)
    return seen[-1]


def unmet_in(service: Service, *pool_types: str | None) -> tuple[UnmetWaiter, ...]:
    """Whose requests can't be met as some pools are now; they wait on.

    Args:
        pool_types: Which pools, those that are still there; None for none.
    """
    found: list[UnmetWaiter] = []
    for pool_type in dict.fromkeys(each for each in pool_types if each is not None):
        try:
            (pool,) = service.pools.pools(pool_type)
        except NotFound:
            continue  # deleted by now
        found += unmet_waiters(pool)
    return tuple(found)
