"""What has to change so that pools are as defined: planned from how they are, then carried out.

A resource that is held stays whatever a definition says, and so does every pool that none names.
So does what has joined its pool for a time, by its ttl or for as long as a process lives: it is
there because it says so itself, and goes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.membership import Member, Pools, Properties, belongs_to, matching_pattern
from leasectl.errors import InvalidRequest, NotAllowed
from leasectl.pools.defined import CountedPool, Definition, NamedPool
from leasectl.pools.settings import NO_CHANGE, SettingsChange, changed, grace_of
from leasectl.text.naming import next_names
from leasectl.typed.tuples import NamedTuple


class NewDefault(NamedTuple):
    """Which pool is to take what nobody else claims, and for how long it holds that back."""

    type: str | None
    grace_seconds: float


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
        joined: Resources that are here, or in another pool, only for a time, as they have said
            themselves, and are left alone.
        joined_elsewhere: In which other pool those of them are that aren't here.
        settings: How it is to grant; None where it does so already.
        wanted: What of that its definition says.
        properties: What resources that it has or gets are to be, by their names; those that are
            so already are left out.
        default: It is to be the default pool, or no more; None where that is as it is.
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
        NotAllowed: Somebody has said that a name belongs to another pool.
    """
    members = {each.name: each for each in known}
    compared = _Plan(tuple(definitions), tuple(pools), members, belonging, places or {})
    return compared.changes()


class _Plan:
    def __init__(
        self,
        definitions: tuple[Definition, ...],
        pools: tuple[Pool, ...],
        members: Mapping[str, Member],
        belonging: Pools,
        places: Mapping[str, str],
    ) -> None:
        self._definitions = definitions
        self._members = members
        self._belonging = belonging
        self._places = places
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
            return NewDefault(None, 0.0) if pools.default == wanted.type else None
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
            if is_listed_there and not self._is_by_default(name):
                raise _taken(wanted.type, name, self._pool_of[name])
        surplus = [n for n in self._names(wanted.type) if n not in self._listed[wanted.type]]
        guests = [name for name in surplus if self._has_joined(name)]
        surplus = [name for name in surplus if name not in guests]
        return PoolChange(
            wanted.type,
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
        """Refuse to have a name in a pool if somebody has said that it belongs to another."""
        member = self._members.get(name, Member(name))
        expected = belongs_to(member, self._belonging)
        if expected not in (None, pool_type):
            pattern = None if member.expected else matching_pattern(name, self._belonging)
            like = f' as it is like "{pattern}"' if pattern else ""
            at = f"{self._places[name]}: " if name in self._places else ""
            raise NotAllowed(
                f'{at}"{name}" is to be in pool "{pool_type}", and is expected in pool '
                f'"{expected}"{like}; change one of them, see: leasectl pool expect --list'
            )

    def _has_joined(self, name: str) -> bool:
        """Tell whether a name is in its pool for a time only, as it has said itself."""
        member = self._members.get(name)
        return member is not None and member.lifetime is not None

    def _is_by_default(self, name: str) -> bool:
        member = self._members.get(name)
        return member is not None and member.by_default

    def _counted(self, wanted: CountedPool) -> PoolChange:
        names = self._names(wanted.type)
        added = next_names(wanted.type, max(0, wanted.at_least - len(names)), names)
        for name in added:
            self._check_belongs(wanted.type, name)
            if name in self._pool_of:
                raise _taken(wanted.type, name, self._pool_of[name])
            if name in self._wanted_in:
                raise InvalidRequest(
                    f'pool "{wanted.type}" would get "{name}", which the file lists in pool '
                    f'"{self._wanted_in[name]}"; give it another name there'
                )
        excess = max(0, len(names) - wanted.at_most)
        # The highest numbers first, so that what grows again gets the same names.
        free = sorted((n for n in names if n not in self._held), key=_by_number)
        guests = [name for name in free if self._has_joined(name)]
        free = [name for name in free if name not in guests]
        removed = tuple(free[len(free) - min(excess, len(free)) :])
        joined = tuple(guests[: excess - len(removed)])
        held = sorted(self._held.intersection(names), key=_by_number)
        return PoolChange(
            wanted.type,
            new=wanted.type not in self._pools,
            added=added,
            removed=removed,
            staying=tuple(held[len(held) - (excess - len(removed) - len(joined)) :]),
            joined=joined,
        )

    def _names(self, pool_type: str) -> list[str]:
        pool = self._pools.get(pool_type)
        return [each.name for each in pool.resources] if pool else []


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _taken(wanted_in: str, name: str, pool_type: str) -> InvalidRequest:
    return InvalidRequest(
        f'pool "{wanted_in}" is to have "{name}", which is in pool "{pool_type}"; list the names '
        "of that pool in the file too, without it, or first run: "
        f"leasectl pool move --names {name} --to {wanted_in}"
    )
