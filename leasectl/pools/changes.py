"""What has to change so that pools are as defined: planned from how they are, then carried out.

A resource that is held stays whatever a definition says, and so does every pool that none names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.membership import Properties
from leasectl.engines.pool_admin import PoolAdmin
from leasectl.errors import InvalidRequest, NotAllowed, NotFound
from leasectl.pools.definitions import CountedPool, Definition, NamedPool
from leasectl.pools.settings import NO_CHANGE, SettingsChange, changed
from leasectl.text.naming import next_names


class PoolChange(NamedTuple):
    """What becomes of one pool.

    Args:
        type: Which.
        new: It has to be made.
        added: Resources that nobody has yet.
        moved: Resources that another pool, which gives them up, has now.
        removed: Free resources that it is not to have, those given up to others included.
        staying: Resources that it is not to have, but that are held.
        awaited: Resources that it is to have, but that are held in another pool.
        settings: How it is to grant; None where it does so already.
        wanted: What of that its definition says.
        properties: What resources that it has or gets are to be, by their names; those that are
            so already are left out.
    """

    type: str
    new: bool = False
    added: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()
    settings: PoolSettings | None = None
    wanted: SettingsChange = NO_CHANGE
    properties: Mapping[str, Properties] = {}


def plan(definitions: Iterable[Definition], pools: Iterable[Pool]) -> tuple[PoolChange, ...]:
    """Compare what is to be with what is.

    Returns:
        One change for each definition, also where there is nothing to do.

    Raises:
        InvalidRequest: A name is in a pool that doesn't give it up, or would be too long.
    """
    return _Plan(tuple(definitions), tuple(pools)).changes()


class _Plan:
    def __init__(self, definitions: tuple[Definition, ...], pools: tuple[Pool, ...]) -> None:
        self._definitions = definitions
        self._pools = {pool.type: pool for pool in pools}
        self._pool_of = {each.name: pool.type for pool in pools for each in pool.resources}
        self._properties_of = {
            each.name: each.member.properties
            for pool in pools
            for each in pool.resources
            if each.member is not None
        }
        self._held = {each.name for pool in pools for each in pool.resources if each.lease}
        self._listed = {
            each.type: frozenset(each.names) for each in definitions if isinstance(each, NamedPool)
        }
        self._wanted_in = {name: t for t, names in self._listed.items() for name in names}

    def changes(self) -> tuple[PoolChange, ...]:
        return tuple(map(self._change, self._definitions))

    def _change(self, wanted: Definition) -> PoolChange:
        change = self._named(wanted) if isinstance(wanted, NamedPool) else self._counted(wanted)
        return change._replace(
            settings=self._settings(wanted),
            wanted=wanted.settings,
            properties=self._other_properties(wanted, change),
        )

    def _other_properties(self, wanted: Definition, change: PoolChange) -> dict[str, Properties]:
        """What is to be so of the pool's resources, where it isn't so yet."""
        if isinstance(wanted, NamedPool):
            said = {n: each for n, each in wanted.properties.items() if n not in change.awaited}
        elif wanted.properties is None:
            said = {}
        else:
            there = {*self._names(wanted.type), *change.added} - {*change.removed, *change.staying}
            said = dict.fromkeys(sorted(there), wanted.properties)
        return {n: each for n, each in said.items() if each != self._properties_of.get(n, ())}

    def _settings(self, wanted: Definition) -> PoolSettings | None:
        pool = self._pools.get(wanted.type)
        before = NO_SETTINGS if pool is None else pool.settings
        try:
            after = changed(before, wanted.settings)
        except InvalidRequest as error:
            raise InvalidRequest(f'pool "{wanted.type}": {error}') from None
        return after if after != before else None

    def _named(self, wanted: NamedPool) -> PoolChange:
        missing = [name for name in wanted.names if self._pool_of.get(name) != wanted.type]
        elsewhere = [name for name in missing if name in self._pool_of]
        for name in elsewhere:
            if name in self._listed.get(self._pool_of[name], {name}):
                raise _taken(wanted.type, name, self._pool_of[name])
        surplus = [n for n in self._names(wanted.type) if n not in self._listed[wanted.type]]
        return PoolChange(
            wanted.type,
            new=wanted.type not in self._pools,
            added=tuple(name for name in missing if name not in self._pool_of),
            moved=tuple(name for name in elsewhere if name not in self._held),
            removed=tuple(name for name in surplus if name not in self._held),
            staying=tuple(name for name in surplus if name in self._held),
            awaited=tuple(name for name in elsewhere if name in self._held),
        )

    def _counted(self, wanted: CountedPool) -> PoolChange:
        names = self._names(wanted.type)
        added = next_names(wanted.type, max(0, wanted.at_least - len(names)), names)
        for name in added:
            if name in self._pool_of:
                raise _taken(wanted.type, name, self._pool_of[name])
            if name in self._wanted_in:
                raise InvalidRequest(
                    f'pool "{wanted.type}" would get "{name}", which the file lists in pool '
                    f'"{self._wanted_in[name]}"; give it another name there'
                )
        excess = max(0, len(names) - wanted.at_most)
        # The highest numbers first, so that what grows again gets the same names.
        free = sorted((n for n in names if n not in self._held), key=lambda n: (len(n), n))
        removed = tuple(free[len(free) - min(excess, len(free)) :])
        held = sorted(self._held.intersection(names), key=lambda n: (len(n), n))
        return PoolChange(
            wanted.type,
            new=wanted.type not in self._pools,
            added=added,
            removed=removed,
            staying=tuple(held[len(held) - (excess - len(removed)) :]),
        )

    def _names(self, pool_type: str) -> list[str]:
        pool = self._pools.get(pool_type)
        return [each.name for each in pool.resources] if pool else []


def _taken(wanted_in: str, name: str, pool_type: str) -> InvalidRequest:
    return InvalidRequest(
        f'pool "{wanted_in}" is to have "{name}", which is in pool "{pool_type}"; list the names '
        "of that pool in the file too, without it, or first run: "
        f"leasectl pool remove {pool_type} --names {name}"
    )


def carry_out(changes: Sequence[PoolChange], pools: PoolAdmin) -> tuple[PoolChange, ...]:
    """Change the pools as planned.

    What is added comes first: a pool must not look too small to those who wait while its names
    are exchanged. Where the store can't do all of it at once, a resource that was acquired since
    the plan was made stays, and another run of this does the rest.

    Returns:
        What has changed.

    Raises:
        InvalidRequest: Somebody else has added one of the names since.
    """
    for change in changes:
        if change.new:
            pools.create_pool(change.type, change.added, settings=change.settings or NO_SETTINGS)
        elif change.settings is not None:
            change_settings(pools, change.type, change.wanted)
        if change.added and not change.new:
            pools.add_resources(change.type, change.added)
    changes = [_remove(change, pools) for change in changes]
    stayed = {name for change in changes for name in change.staying}
    return tuple(_move(change, pools, stayed) for change in changes)


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


def _remove(change: PoolChange, pools: PoolAdmin) -> PoolChange:
    if not change.removed:
        return change
    try:
        pools.remove_resources(change.type, change.removed, force=False)
        return change
    except (NotAllowed, NotFound):
        removed = tuple(each for each in change.removed if _was_removed(change.type, each, pools))
    held = tuple(each for each in change.removed if each not in removed)
    return change._replace(removed=removed, staying=change.staying + held)


def _was_removed(pool_type: str, name: str, pools: PoolAdmin) -> bool:
    try:
        pools.remove_resources(pool_type, [name], force=False)
    except NotAllowed:
        return False
    except NotFound:
        pass  # somebody else was faster
    return True


def _move(change: PoolChange, pools: PoolAdmin, stayed: set[str]) -> PoolChange:
    moved = tuple(name for name in change.moved if name not in stayed)
    if moved:
        pools.add_resources(change.type, moved)
    late = tuple(name for name in change.moved if name in stayed)
    return change._replace(moved=moved, awaited=change.awaited + late)
