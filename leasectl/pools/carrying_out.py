"""Carrying out what `leasectl.pools.changes` has planned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from leasectl.engines import membership
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.members import Decide, Members
from leasectl.engines.membership import Member, Pools
from leasectl.engines.pool_admin import PoolAdmin
from leasectl.errors import NotAllowed, NotFound
from leasectl.pools.changes import PoolChange
from leasectl.pools.settings import SettingsChange, changed


def carry_out(
    changes: Sequence[PoolChange], pools: PoolAdmin, members: Members
) -> tuple[PoolChange, ...]:
    """Change the pools as planned.

    What is added comes first: a pool must not look too small to those who wait while its names
    are exchanged. Where the store can't do all of it at once, a resource that was acquired since
    the plan was made stays, and another run of this does the rest; but each that goes from pool to
    pool does so in one step. What has joined for a time since then stays as well.

    Returns:
        What has changed.

    Raises:
        NotAllowed: Somebody else has added one of the names elsewhere since.
    """
    for change in changes:
        coming = change.added
        if change.new:
            plain = [name for name in coming if name not in change.properties]
            coming = tuple(name for name in coming if name in change.properties)
            pools.create_pool(change.type, plain, settings=change.settings or NO_SETTINGS)
        elif change.settings is not None:
            change_settings(pools, change.type, change.wanted)
        if coming:
            members.update(coming, partial(_added, change=change))
    moved = {name for change in changes for name in change.moved}
    stayed = {name for change in changes for name in _move(change, members)}
    defaults = [each for each in changes if each.default is not None]
    for change in sorted(defaults, key=_is_made_default):  # no more, then new
        members.change_belonging(partial(_with_default, change=change))
    return tuple(_done(_remove(change, moved, members), stayed) for change in changes)


def _is_made_default(change: PoolChange) -> bool:
    return change.default is not None and change.default.type is not None


def _with_default(pools: Pools, *, change: PoolChange) -> Pools:
    default = change.default
    assert default is not None
    if default.type is None and pools.default != change.type:
        return pools  # somebody else has made another the default since
    return membership.set_default(pools, default.type, default.grace_seconds)


def _added(member: Member, pools: Pools, *, change: PoolChange) -> Member:
    return _as_it_is_to_be(membership.add(member, change.type, pools), change)


def _as_it_is_to_be(member: Member, change: PoolChange) -> Member:
    """A name that comes to a pool, with what it is to be there: nobody gets it before that."""
    return member._replace(properties=change.properties.get(member.name, member.properties))


def _move(change: PoolChange, members: Members) -> list[str]:
    """Move what is to be in a pool, each in one step; returns what is held by now, or has gone."""

    def moved(member: Member, pools: Pools) -> Member:
        there = membership.move(member, change.type, pools, when_free=False)
        return _as_it_is_to_be(there, change)

    after = _changed(members, change.moved, moved)
    return [each.name for each in after if each.pool != change.type]


def _changed(members: Members, names: Sequence[str], decide: Decide) -> tuple[Member, ...]:
    """Change names; who is held by now, has gone, or has joined for a time since stays as it is."""

    def changed(member: Member, pools: Pools) -> Member:
        if member.lifetime is not None:
            return member
        try:
            return decide(member, pools)
        except (NotAllowed, NotFound):
            return member

    return members.update(names, changed).after if names else ()


def _done(change: PoolChange, stayed: set[str]) -> PoolChange:
    """What has changed of a pool, where some names were to come or go and have stayed."""
    return change._replace(
        moved=tuple(name for name in change.moved if name not in stayed),
        removed=tuple(name for name in change.removed if name not in stayed),
        staying=change.staying + tuple(name for name in change.removed if name in stayed),
        awaited=change.awaited + tuple(name for name in change.moved if name in stayed),
    )


def change_settings(
    pools: PoolAdmin, pool_type: str, change: SettingsChange
) -> tuple[PoolSettings, PoolSettings]:
    """Have a pool grant otherwise; what others change at the same time isn't lost.

    Returns:
        Its settings before and after.

    Raises:
        NotFound: No such type.
        InvalidRequest: It can't grant like that.
    """
    while True:
        (pool,) = pools.pools(pool_type)
        before, after = pool.settings, changed(pool.settings, change)
        if before == after or pools.change_settings(pool_type, after, seen=before):
            return before, after


def _remove(change: PoolChange, moved: set[str], members: Members) -> PoolChange:
    """Take out what isn't to be in a pool; what is held by now stays."""

    def removed(member: Member, _: Pools) -> Member:
        return membership.remove(member, change.type, force=False)

    going = [name for name in change.removed if name not in moved]
    after = _changed(members, going, removed)
    staying = tuple(each.name for each in after if each.pool == change.type)
    gone = tuple(each for each in change.removed if each not in staying)
    return change._replace(removed=gone, staying=change.staying + staying)
