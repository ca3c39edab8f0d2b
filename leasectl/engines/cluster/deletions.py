"""Delete pools, and finish what a killed process left.

A pool that is to be deleted only if it is unused becomes `closing` first: a waiter that looks from
then on gets nothing there. A waiter that looked before can still claim, until each resource of the
pool has been written once more. If none of them is held after that, none will be, and the deletion
is only undone by being called off. Then all flags of entering names are removed (`entering`), moves
to the pool are cancelled, and one write makes it `gone`: that is the deletion, for everybody. What
is left is removed after that, by whichever process comes by. Until the pool is gone, a holder that
claimed in time sees it like any other pool, and so do processes that only look.

Each process that closes a pool writes a random word with it. A process that finds a closing pool
goes on with it, since its closer may have been killed, and makes it `gone` only if the word is
still the same. If the deletion was called off in between, others may have claimed since, so all of
it begins again.

A pool that is being made and isn't complete is deleted in the same way; its creator is told.
"""

from __future__ import annotations

import secrets

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import released, touched, with_member
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.entering import all_known, forget_default, sweep
from leasectl.engines.cluster.events import ToldOf
from leasectl.engines.cluster.expiry import reap
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    PoolObject,
    PoolState,
    ResourceObject,
    too_fast,
)
from leasectl.engines.cluster.turns import in_order
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.rules.events import POOL_DELETED
from leasectl.engines.rules.membership import remove
from leasectl.errors import LeaseError


def delete_pool(context: Context, pool_type: str, *, force: bool) -> None:
    """Implement `PoolAdmin.delete_pool`; finish what another process began.

    Args:
        context: Of the place.
        pool_type: Which.
        force: Also if it is used.
    """
    meant = ""
    for _ in range(MOST_TRIES):
        pool = context.pool_object(pool_type)
        if meant and (pool is None or pool.id.uid != meant):
            return
        if pool is None:
            raise context.no_pool(pool_type)
        meant = pool.id.uid
        if pool.state == "open":
            if not force:
                view = context.pool(pool_type)
                _check_unused(context.pool(pool_type) if reap(context, view) else view)
            closing = pool._replace(state="closing", word=secrets.token_hex(8))
            context.objects.write(Change(pool, closing))
        elif end_pool(context, pool, force=force):
            return
    raise too_fast(f'"{pool_type}"')


def end_pool(context: Context, pool: PoolObject, *, force: bool) -> bool:
    """Finish the creation or deletion of a pool that isn't open.

    Args:
        context: Of the place.
        pool: As it was seen.
        force: Also if it is used.

    Returns:
        Whether it is gone and nothing is left of it; else something else was done to it.

    Raises:
        NotAllowed: It is used, and granting again.
    """
    if pool.state == "closing":
        if not force:
            try:
                _shut_out(context, pool.type)
            except LeaseError:
                # It is in use, and grants again, unless another process has changed its state.
                context.change(pool, lambda there: _in_state(there, pool, "open"))
                raise
        sweep(context)
        _keep_away(context, pool)
    if pool.state != "gone" and not _have_gone(context, pool):
        return False
    finish(context, pool.type)
    return True


def finish(context: Context, pool_type: str) -> None:
    """Take away what is left of a pool that is gone, the pool itself last."""
    pool = context.pool_object(pool_type)
    if pool is None or pool.state != "gone":
        return
    sweep(context)  # whoever was making it sees from then on that it is gone
    for _ in range(MOST_TRIES):
        known = all_known(context)
        there = known.objects.get(pool_type)
        if there is None or there.id.uid != pool.id.uid:
            return  # somebody was faster, and there may be another of that type
        left = [
            each
            for each in known.resources.values()
            if pool_type in (each.member.pool, each.member.moves_to)
        ]
        if not left:
            break
        # As they were seen in what is gone, and no other way.
        for each in context.write_all(left, lambda seen: _out_of(context, seen, pool_type)):
            if each.member.pool == pool_type:
                context.tell_lost(each)
    else:
        raise too_fast(f'"{pool_type}"')
    forget_default(context, pool_type)
    view = context.pool(pool_type)
    if view.pool is None or view.pool.id.uid != pool.id.uid:
        return
    for ticket in view.tickets.values():
        is_served = view.is_served(ticket)
        told = () if is_served else context.events.withdrawn(ticket, POOL_DELETED)
        context.objects.remove(ticket, told)
    for damaged in view.unreadable.values():
        context.objects.remove(damaged)
    context.objects.remove(pool)


# Step by step


def _shut_out(context: Context, pool_type: str) -> None:
    """Invalidate the claims of waiters that looked before the pool was closing.

    Where a claim is united with what was seen of the pool, that is done by its closing.
    """

    def touch(seen: ResourceObject) -> Change | None:
        if seen.member.pool != pool_type:
            return None
        if seen.claim is not None:
            raise refusals.pool_in_use(pool_type, 1, 0)
        return Change(seen, touched(seen))

    view = context.pool(pool_type)
    _check_unused(view)
    for resource in () if context.objects.unites else view.resources.values():
        context.change(resource, touch)


def _keep_away(context: Context, pool: PoolObject) -> None:
    """Cancel moves to a pool, unless another has its type by now."""
    for _ in range(MOST_TRIES):
        coming = context.moving_to(pool.type)
        there = context.pool_object(pool.type) if coming else None
        if there is None or _in_state(there, pool, "gone") is None:
            return
        context.write_all(coming, _stay)  # as they were seen while it was the same
    raise too_fast(f'"{pool.type}"')


def _stay(seen: ResourceObject) -> Change:
    """Return what cancels the move of a name."""
    return Change(seen, with_member(seen, seen.member._replace(moves_to=None)))


def _out_of(context: Context, seen: ResourceObject, pool_type: str) -> Change:
    """Return what takes a name out of a pool, or cancels its move there."""
    if seen.member.pool != pool_type:
        return _stay(seen)
    after = remove(seen.member, pool_type, force=True)
    told = context.events.ended([seen], by="removal", at=context.events.now())
    return Change(seen, released(seen, after) if after.is_known else None, told)


def _have_gone(context: Context, pool: PoolObject) -> bool:
    """Mark a pool as gone, if its state and word are still the same."""
    told: ToldOf = ()
    if pool.state == "closing":  # else it was never there in full
        at, view = context.events.now(), context.pool(pool.type)
        names = sorted(each.name for each in view.resources.values())
        told = context.events.of_pool("pool deleted", pool.type, names, at=at)
    if context.change(pool, lambda there: _in_state(there, pool, "gone", told)):
        return True
    there = context.pool_object(pool.type)
    return there is None or there.state == "gone"


def _in_state(
    there: PoolObject, pool: PoolObject, state: PoolState, told: ToldOf = ()
) -> Change | None:
    """Return what gives a pool another state; None if its state has changed since it was seen."""
    if (there.id.uid, there.state, there.word) != (pool.id.uid, pool.state, pool.word):
        return None
    word = "" if state == "open" else there.word
    return Change(there, there._replace(state=state, word=word), told)


def _check_unused(view: PoolView) -> None:
    """Refuse to delete a pool that is in use.

    Raises:
        NotAllowed: It has holders or waiters.
    """
    held = sum(each.claim is not None for each in view.resources.values())
    waiting = len(in_order(view))
    if held or waiting:
        raise refusals.pool_in_use(view.pool_type, held, waiting)
