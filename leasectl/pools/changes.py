"""Compare a file with what is there, and carry out the difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.pool_admin import Decide, Members, PoolAdmin
from leasectl.engines.rules import membership
from leasectl.engines.rules.membership import (
    Member,
    Pools,
    Properties,
    belongs_to,
    matching_pattern,
)
from leasectl.errors import InvalidRequest, NotAllowed, NotFound
from leasectl.pools import expectations
from leasectl.pools.definitions import (
    NOTHING_EXPECTED,
    CountedPool,
    Definition,
    Expected,
    NamedPool,
)
from leasectl.pools.settings import NO_CHANGE, SettingsChange, changed, grace_of
from leasectl.text.naming import next_names


class NewDefault(NamedTuple):
    """The new default pool, and its grace time."""

    type: str | None
    grace_seconds: float


NO_DEFAULT = NewDefault(None, 0.0)


class PoolChange(NamedTuple):
    """The change of one pool.

    Args:
        type: Its type.
        new: It is created.
        added: Resources that are in no pool yet.
        moved: Resources that come from another pool, which gives them up.
        removed: Free resources that leave it, those given up to others included.
        staying: Held resources that leave it with their release.
        awaited: Resources that are held in another pool, and come with their release.
        returning: Resources that were to leave or move with their release, and now stay.
        joined: Resources that have joined this pool or another for a time, and are left alone.
        joined_elsewhere: The other pools of those of them that aren't here.
        settings: Its new settings; None if they stay.
        wanted: The settings in its definition.
        properties: The properties that resources get, by name; without those that have them
            already.
        default: It becomes the default pool, or no longer is; None if that stays.
        expected: Names and patterns that are expected here from now on.
        dropped: Names and patterns that aren't expected here any more.
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
    joined: tuple[str, ...] = ()
    joined_elsewhere: Mapping[str, str] = {}
    default: NewDefault | None = None
    returning: tuple[str, ...] = ()
    expected: Expected = NOTHING_EXPECTED
    dropped: Expected = NOTHING_EXPECTED

    @property
    def is_change(self) -> bool:
        """Whether anything changes."""
        names = self.added + self.moved + self.removed + self.returning
        subjects = self.expected.subjects + self.dropped.subjects
        others = (self.settings, self.default)
        return self.new or bool(names or subjects or self.properties) or others != (None, None)


NOTHING_SAID = Pools(frozenset())


def plan(
    definitions: Iterable[Definition],
    pools: Iterable[Pool],
    *,
    known: Iterable[Member] = (),
    belonging: Pools = NOTHING_SAID,
    places: Mapping[str, str] | None = None,
) -> tuple[PoolChange, ...]:
    """Compare what is to be with what is.

    Args:
        definitions: What is to be.
        pools: What is.
        known: What is known of names beside that.
        belonging: Where names belong that patterns match.
        places: Where a name is listed, for messages: a file and perhaps a line.

    Returns:
        One change for each definition, also where there is nothing to do.

    Raises:
        InvalidRequest: A name is in a pool that doesn't give it up, or would be too long.
        NotAllowed: A name is expected in another pool.
    """
    return _Plan(definitions, pools, known, belonging, places or {}).changes()


class _Plan:
    def __init__(
        self,
        definitions: Iterable[Definition],
        pools: Iterable[Pool],
        known: Iterable[Member],
        belonging: Pools,
        places: Mapping[str, str],
    ) -> None:
        self._definitions = tuple(definitions)
        self._members = {each.name: each for each in known}
        self._belonging = belonging
        self._places = places
        self._expectations = {each.type: self._expected(each) for each in self._definitions}
        self._expect()  # the rest is compared with what will be expected
        self._pools = {pool.type: pool for pool in pools}
        resources = [(each, pool.type) for pool in self._pools.values() for each in pool.resources]
        self._pool_of = {each.name: pool_type for each, pool_type in resources}
        self._properties_of = {
            each.name: each.member.properties for each, _ in resources if each.member is not None
        }
        self._held = {each.name for each, _ in resources if each.lease}
        self._listed = {
            each.type: frozenset(each.names)
            for each in self._definitions
            if isinstance(each, NamedPool)
        }
        self._wanted_in = {name: t for t, names in self._listed.items() for name in names}

    def _member(self, name: str) -> Member:
        return self._members.get(name, Member(name))

    def _expected(self, wanted: Definition) -> tuple[Expected, Expected]:
        """Return what is to be expected in a pool besides, and what isn't any more."""
        if wanted.expected is None:
            return NOTHING_EXPECTED, NOTHING_EXPECTED
        names = [each.name for each in self._members.values() if each.expected == wanted.type]
        patterns = [n for n, to in self._belonging.patterns.items() if to == wanted.type]
        now = Expected(tuple(names), tuple(patterns))
        return _without(wanted.expected, now), _without(now, wanted.expected)

    def _expect(self) -> None:
        """Change what is expected as the definitions have it.

        Raises:
            NotAllowed: One is expected in another pool, which doesn't drop it.
        """
        patterns = dict(self._belonging.patterns)
        for _, dropped in self._expectations.values():
            for name in dropped.names:
                self._members[name] = self._members[name]._replace(expected=None)
            for pattern in dropped.patterns:
                del patterns[pattern]
        for pool_type, (expected, _) in self._expectations.items():
            for name in expected.names:
                member = self._member(name)
                if member.expected is not None:
                    raise refusals.belongs_elsewhere(name, member.expected)
                self._members[name] = member._replace(expected=pool_type)
            for pattern in expected.patterns:
                if pattern in patterns:
                    raise refusals.pattern_taken(pattern, patterns[pattern])
                patterns[pattern] = pool_type
        self._belonging = self._belonging._replace(patterns=patterns)

    def _check_expected(self, wanted: Definition) -> None:
        """Refuse to expect a name that is and stays in another pool.

        Raises:
            NotAllowed: One is.
        """
        for name in self._expectations[wanted.type][0].names:
            pool_type = self._pool_of.get(name)
            member = self._members[name]
            if pool_type is None or pool_type == wanted.type or member.by_default:
                continue
            comes = name in self._listed.get(wanted.type, ()) or member.moves_to == wanted.type
            is_removed = name not in self._listed.get(pool_type, {name}) and name not in self._held
            if comes or is_removed:
                continue
            raise refusals.in_another_pool(name, pool_type, wanted.type, is_held=name in self._held)

    def changes(self) -> tuple[PoolChange, ...]:
        return tuple(map(self._change, self._definitions))

    def _change(self, wanted: Definition) -> PoolChange:
        change = self._named(wanted) if isinstance(wanted, NamedPool) else self._counted(wanted)
        self._check_expected(wanted)
        expected, dropped = self._expectations[wanted.type]
        return change._replace(
            expected=expected,
            dropped=dropped,
            settings=self._settings(wanted),
            wanted=wanted.settings,
            properties=self._other_properties(wanted, change),
            default=self._default(wanted),
        )

    def _other_properties(self, wanted: Definition, change: PoolChange) -> dict[str, Properties]:
        """What is to be so of the pool's resources, where it isn't so yet."""
        elsewhere = {*change.awaited, *change.joined}
        if isinstance(wanted, NamedPool):
            said = {n: each for n, each in wanted.properties.items() if n not in elsewhere}
        elif wanted.properties is None:
            said = {}
        else:
            there = {*self._names(wanted.type), *change.added} - {*change.removed, *change.staying}
            said = dict.fromkeys(sorted(there), wanted.properties)
        return {n: each for n, each in said.items() if each != self._properties_of.get(n, ())}

    def _default(self, wanted: Definition) -> NewDefault | None:
        pools, is_default = self._belonging, wanted.default.is_default
        if is_default is None:
            return None
        if not is_default:
            return NO_DEFAULT if pools.default == wanted.type else None
        grace = grace_of(pools, wanted.type, wanted.default.grace_seconds)
        is_so = (pools.default, pools.grace_seconds) == (wanted.type, grace)
        return None if is_so else NewDefault(wanted.type, grace)

    def _settings(self, wanted: Definition) -> PoolSettings | None:
        pool = self._pools.get(wanted.type)
        before = NO_SETTINGS if pool is None else pool.settings
        try:
            after = changed(before, wanted.settings)
        except InvalidRequest as error:
            raise InvalidRequest(f'pool "{wanted.type}": {error}') from None
        return after if after != before else None

    def _named(self, wanted: NamedPool) -> PoolChange:
        for name in wanted.names:
            self._check_belongs(wanted.type, name)
        missing = [name for name in wanted.names if self._pool_of.get(name) != wanted.type]
        elsewhere = [name for name in missing if name in self._pool_of]
        strays = [name for name in elsewhere if self._has_joined(name)]
        elsewhere = [name for name in elsewhere if name not in strays]
        for name in elsewhere:
            is_listed_there = name in self._listed.get(self._pool_of[name], {name})
            if is_listed_there and not self._member(name).by_default:
                raise _taken(wanted.type, name, self._pool_of[name])
        surplus = [n for n in self._names(wanted.type) if n not in self._listed[wanted.type]]
        guests = [name for name in surplus if self._has_joined(name)]
        surplus = [name for name in surplus if name not in guests]
        listed = [name for name in wanted.names if name not in missing]
        return PoolChange(
            type=wanted.type,
            returning=tuple(name for name in listed if _is_to_go(self._member(name))),
            new=wanted.type not in self._pools,
            added=tuple(name for name in missing if name not in self._pool_of),
            moved=tuple(name for name in elsewhere if name not in self._held),
            removed=tuple(name for name in surplus if name not in self._held),
            staying=tuple(name for name in surplus if name in self._held),
            awaited=tuple(name for name in elsewhere if name in self._held),
            joined=tuple(guests + strays),
            joined_elsewhere={name: self._pool_of[name] for name in strays},
        )

    def _check_belongs(self, pool_type: str, name: str) -> None:
        """Refuse a name in a pool if another pool expects it."""
        member = self._member(name)
        expected = belongs_to(member, self._belonging)
        if expected not in (None, pool_type):
            pattern = None if member.expected else matching_pattern(name, self._belonging)
            like = f' because it matches "{pattern}"' if pattern else ""
            at = f"{self._places[name]}: " if name in self._places else ""
            raise NotAllowed(
                f'{at}"{name}" is listed in pool "{pool_type}", but is expected in pool '
                f'"{expected}"{like}; change the list or the expectation, see: leasectl pool '
                "expect --list"
            )

    def _has_joined(self, name: str) -> bool:
        """Tell whether a name is in its pool for a time only, as it has said itself."""
        return self._member(name).lifetime is not None

    def _counted(self, wanted: CountedPool) -> PoolChange:
        names = self._names(wanted.type)
        added = next_names(wanted.type, max(0, wanted.at_least - len(names)), names)
        for name in added:
            self._check_belongs(wanted.type, name)
            if name in self._pool_of:
                raise _taken(wanted.type, name, self._pool_of[name])
            if name in self._wanted_in:
                raise InvalidRequest(
                    f'the file lists "{name}" in pool "{self._wanted_in[name]}", and pool '
                    f'"{wanted.type}" would create the same name; rename it in the list'
                )
        excess = max(0, len(names) - wanted.at_most)
        # The highest numbers first, so that what grows again gets the same names.
        free = sorted((n for n in names if n not in self._held), key=_by_number)
        guests = [name for name in free if self._has_joined(name)]
        free = [name for name in free if name not in guests]
        removed = tuple(free[len(free) - min(excess, len(free)) :])
        joined = tuple(guests[: excess - len(removed)])
        held = sorted(self._held.intersection(names), key=_by_number)
        staying = tuple(held[len(held) - (excess - len(removed) - len(joined)) :])
        return PoolChange(
            wanted.type,
            returning=tuple(
                name for name in held[: len(held) - len(staying)] if self._member(name).leaves
            ),
            new=wanted.type not in self._pools,
            added=added,
            removed=removed,
            staying=staying,
            joined=joined,
        )

    def _names(self, pool_type: str) -> list[str]:
        pool = self._pools.get(pool_type)
        return [each.name for each in pool.resources] if pool else []


def _without(those: Expected, others: Expected) -> Expected:
    left = set(others.subjects)
    names = tuple(each for each in those.names if each not in left)
    return Expected(names, tuple(each for each in those.patterns if each not in left))


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _taken(wanted_in: str, name: str, pool_type: str) -> InvalidRequest:
    return InvalidRequest(
        f'the file puts "{name}" into pool "{wanted_in}", but it is in pool '
        f'"{pool_type}"; add an entry for pool "{pool_type}" without "{name}", or first run: '
        f"leasectl pool move --names {name} --to {wanted_in}"
    )


def carry_out(
    changes: Sequence[PoolChange], pools: PoolAdmin, members: Members
) -> tuple[PoolChange, ...]:
    """Change the pools as planned.

    Additions come first: a pool must not look too small to its waiters while its names are
    exchanged. If the store can't do all of it at once, a resource that was acquired since the plan
    was made stays, and another run of this does the rest. Each move from pool to pool is one step.
    A name that has joined for a time since then stays as well.

    Returns:
        What has changed.

    Raises:
        NotAllowed: Another process has added one of the names elsewhere since.
    """
    for change in changes:
        if change.dropped.subjects:
            expectations.drop(members, change.type, *change.dropped)
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
    # Those that are it no longer come first.
    for change in sorted(defaults, key=lambda each: each.default != NO_DEFAULT):
        members.change_belonging(partial(_with_default, change=change))
    for change in changes:
        _changed(members, change.awaited, partial(_move_when_free, to=change.type))
        _changed(members, change.returning, partial(_kept, change=change))
    elsewhere = moved.union(*(change.awaited for change in changes))
    done = tuple(_done(_remove(change, elsewhere, members), stayed) for change in changes)
    for change in changes:
        if change.expected.subjects:
            expectations.expect(members, change.type, *change.expected)
    return done


def _move_when_free(member: Member, pools: Pools, *, to: str) -> Member:
    return membership.move(member, to, pools, when_free=True)


def _with_default(pools: Pools, *, change: PoolChange) -> Pools:
    default = change.default
    assert default is not None
    if default.type is None and pools.default != change.type:
        return pools  # somebody else has made another the default since
    return membership.set_default(pools, default.type, default.grace_seconds)


def _added(member: Member, pools: Pools, *, change: PoolChange) -> Member:
    return _as_it_is_to_be(membership.add(member, change.type, pools), change)


def _is_to_go(member: Member) -> bool:
    return member.leaves or member.moves_to is not None


def _kept(member: Member, pools: Pools, *, change: PoolChange) -> Member:
    return _added(member, pools, change=change)._replace(moves_to=None)


def _as_it_is_to_be(member: Member, change: PoolChange) -> Member:
    """Give a name that comes to a pool its properties, before it can be granted."""
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
    """Change the settings of a pool, without losing another process's change at the same time.

    Returns:
        Its settings before and after.

    Raises:
        NotFound: No such type.
        InvalidRequest: The settings are invalid.
    """
    while True:
        (pool,) = pools.pools(pool_type)
        before, after = pool.settings, changed(pool.settings, change)
        if before == after or pools.change_settings(pool_type, after, seen=before):
            return before, after


def _remove(change: PoolChange, elsewhere: set[str], members: Members) -> PoolChange:
    """Take out what isn't to be in a pool; what is held leaves with its release.

    Args:
        change: Of that pool.
        elsewhere: What goes to another pool instead.
        members: Of the store.
    """

    def left(member: Member, _: Pools) -> Member:
        return membership.leave(member, change.type)

    going = [name for name in (*change.removed, *change.staying) if name not in elsewhere]
    removed = frozenset(change.removed)
    after = [each for each in _changed(members, going, left) if each.name in removed]
    staying = {each.name: None for each in after if each.pool == change.type}
    gone = tuple(each for each in change.removed if each not in staying)
    return change._replace(removed=gone, staying=(*change.staying, *staying))
