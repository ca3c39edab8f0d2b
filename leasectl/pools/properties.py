"""Set properties of resources.

A change says which keys to set and which to remove; other keys stay, unless the change replaces
all. For names that are added to a pool it is one step with their addition, so no holder ever gets
one without its properties.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.pool_admin import Members, PoolAdmin
from leasectl.engines.rules.membership import Member, Pools, Properties, add
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.text.properties import check_count, check_key, check_value
from leasectl.text.wording import printable


class PropertyChange(NamedTuple):
    """What is to be otherwise.

    Args:
        put: What is to be so.
        dropped: The keys of what isn't to be so any more.
        replaces: Nothing but what is put is to be so.
    """

    put: Properties = ()
    dropped: frozenset[str] = frozenset()
    replaces: bool = False

    def of(self, name: str, before: Properties = ()) -> Properties:
        """What is so of a resource after the change, sorted by the keys.

        Raises:
            InvalidRequest: It would be more than there may be.
        """
        kept = {} if self.replaces else {k: v for k, v in before if k not in self.dropped}
        after = {**kept, **dict(self.put)}
        check_count(f'"{name}" would have', len(after))
        return tuple(sorted(after.items()))

    def describe(self) -> str:
        """Say it for people."""
        put = [f"{key}={printable(value)}" for key, value in self.put]
        return ", ".join([*put, *(f"no {key}" for key in sorted(self.dropped))])


NO_CHANGE = PropertyChange()


def parse_change(texts: Iterable[str]) -> PropertyChange:
    """Read a change, each word ``K=V`` to put a property, or ``K-`` to drop one.

    Raises:
        InvalidRequest: One is neither, or a key is named twice.
    """
    put: dict[str, str] = {}
    dropped: list[str] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals and not key.endswith("-"):
            raise InvalidRequest(
                f'--property "{printable(text)}": write it as KEY=VALUE, or KEY- to remove it'
            )
        key = check_key(key if equals else key[:-1])
        if key in put or key in dropped:
            raise InvalidRequest(f'--property: "{key}" is named twice')
        if equals:
            put[key] = check_value(key, value)
        else:
            dropped.append(key)
    check_count("--property puts", len(put))
    return PropertyChange(tuple(sorted(put.items())), frozenset(dropped))


def create_pool(
    pools: PoolAdmin,
    members: Members,
    pool_type: str,
    names: Sequence[str],
    change: PropertyChange = NO_CHANGE,
    *,
    settings: PoolSettings = NO_SETTINGS,
) -> None:
    """Create a pool of names that are in no pool, or that are in one by default.

    Where the store can't do this at once, a kill in between leaves a pool that lacks the names that
    were elsewhere by default and, with properties, perhaps others. Each name in it has its
    properties.

    Args:
        pools: Of the store.
        members: Of the same store.
        pool_type: The pool.
        names: Its names.
        change: Their properties.
        settings: How it grants.

    Raises:
        InvalidRequest: There is a pool of that type, or they would have too many properties.
        NotAllowed: A name is in another pool, or expected in one.
        LeaseError: See `PoolAdmin.create_pool`; there is no new pool then.
    """
    coming = set(_to_be_added(members, pool_type, names, change))
    new = [name for name in names if name not in coming]
    try:
        pools.create_pool(pool_type, new, settings=settings)
    except InvalidRequest:
        if pool_type not in members.belonging().types:
            _to_be_added(members, pool_type, names, change)  # somebody has just added one elsewhere
        raise
    try:
        if coming:
            add_resources(members, pool_type, [name for name in names if name in coming], change)
    except LeaseError:
        with contextlib.suppress(LeaseError):  # somebody uses it already
            (pool,) = pools.pools(pool_type)
            if {each.name for each in pool.resources} <= set(names):  # else others have added to it
                pools.delete_pool(pool_type, force=False)
        raise


def _to_be_added(
    members: Members, pool_type: str, names: Sequence[str], change: PropertyChange
) -> list[str]:
    """Which names of a pool that is to be made can't be made with it, and have to be added then.

    Raises:
        LeaseError: One can't be.
    """
    known = members.belonging()
    known = known._replace(types=known.types | {pool_type})
    there = members.members(names)
    for member in there:
        _coming(member, known, pool_type, change)
    return [each.name for each in there if each.pool is not None or change != NO_CHANGE]


def add_resources(
    members: Members,
    pool_type: str,
    names: Sequence[str],
    change: PropertyChange,
    *,
    are_new: bool = False,
) -> tuple[str, ...]:
    """Add resources to a pool and have them be something; those that are there become that, too.

    Args:
        members: Of the pool's store.
        pool_type: The pool.
        names: Which.
        change: What they are to be.
        are_new: None of them may be there.

    Returns:
        Those that weren't there, or were to leave.

    Raises:
        InvalidRequest: One is there that may not be, or would have too many properties.
        LeaseError: As `membership.add`.
    """

    def decide(member: Member, known: Pools) -> Member:
        if are_new and member.pool == pool_type and not member.leaves:
            raise refusals.name_taken(member.name, pool_type)
        return _coming(member, known, pool_type, change)

    before = members.update(names, decide).before
    return tuple(each.name for each in before if each.pool != pool_type or each.leaves)


def _coming(member: Member, known: Pools, pool_type: str, change: PropertyChange) -> Member:
    """The change for a name that is added to a pool, with its properties."""
    added = add(member, pool_type, known)
    return added._replace(properties=change.of(member.name, added.properties))


def change_properties(
    members: Members,
    pool_type: str,
    names: Sequence[str],
    change: PropertyChange,
    *,
    as_seen: bool = False,
) -> tuple[str, ...]:
    """Change properties of a pool's resources, held or not.

    Args:
        members: Of the pool's store.
        pool_type: The pool.
        names: Of the resources.
        change: The properties to set and to remove.
        as_seen: They were all resources of the pool: one that has left since is skipped.

    Returns:
        The names of those that were changed.

    Raises:
        NotFound: One isn't in the pool.
        InvalidRequest: One would have more properties than allowed.
    """

    def decide(member: Member, _: Pools) -> Member:
        if member.pool != pool_type:
            if as_seen:
                return member
            raise refusals.no_resource(pool_type, member.name)
        return member._replace(properties=change.of(member.name, member.properties))

    done = members.update(names, decide)
    return tuple(a.name for b, a in zip(done.before, done.after) if a != b)


def put_properties(members: Members, pool_type: str, properties: Mapping[str, Properties]) -> None:
    """Set the properties of some names in a pool; names that are gone are skipped."""

    def decide(member: Member, _: Pools) -> Member:
        if member.pool != pool_type:
            return member
        return member._replace(properties=properties[member.name])

    members.update(tuple(properties), decide)
