"""Read names: their pools, properties and holders.

All of it as it is at one revision. What has to be read of a name depends on what it says, so that
one looks again until there is nothing more to read: two or three times for what is free, once more
for what is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    KeyValue,
    read,
    read_all,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in, type_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import (
    free_of,
    has_ended,
    parse_belonging,
    parse_bound,
    parse_member,
)
from leasectl.engines.etcd.records import Claim, Free, last_fence, parse_claim, parse_free
from leasectl.engines.membership import Member, Pools, after_lifetime, after_release

# Each has seven keys at most, and one request has 128 reads.
SEEN_AT_ONCE = 12


class Holding(NamedTuple):
    """The claim that holds a name.

    Args:
        claim: What it says.
        held: Where it was read.
        is_alive: It is good; else it has run out, and may be kept for its holder.
    """

    claim: Claim
    held: KeyValue
    is_alive: bool


class NameView(NamedTuple):
    """All that is written down of one name.

    Args:
        member: What that comes to.
        taken: Its ``name/``; also where the pool is only being made, or is left of a deleted one.
        fact: Its ``member/``.
        resource: Its ``resource/``.
        free: It is free: as ``free/`` says or, where it is closed, ``bound/``; with an empty key
            where nothing says so, which is then to be put right.
        bound: Its ``bound/``.
        holding: Who holds it.
        life: Its ``life/``.
        coming: Its ``coming/`` in the pool that it is in.
        grace: Its ``grace/``.
    """

    member: Member
    taken: KeyValue | None = None
    fact: KeyValue | None = None
    resource: KeyValue | None = None
    free: Free | None = None
    bound: KeyValue | None = None
    holding: Holding | None = None
    life: KeyValue | None = None
    coming: KeyValue | None = None
    grace: KeyValue | None = None

    @property
    def is_over(self) -> bool:
        """Whether its time in its pool is."""
        return has_ended(self.member.lifetime, self.life)

    def now(self, types: Set[str]) -> Member:
        """What is so of it once what is over has been heeded, and that nobody holds it.

        One whose pool to be has gone stays where it is, and takes holders there again.

        Args:
            types: Of the pools that there are.
        """
        member = after_lifetime(self.member) if self.is_over else self.member
        if member.moves_to is not None and member.moves_to not in types:
            member = member._replace(moves_to=None)
        return member if self.is_held else after_release(member)

    @property
    def is_held_back(self) -> bool:
        """Whether nobody gets it yet, because somebody may still claim it for another pool."""
        return self.member.by_default and self.coming is not None and self.grace is not None

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it."""
        return self.holding is not None

    @property
    def is_settled(self) -> bool:
        """Whether all is written down as it has to be by now."""
        if self.member.pool is None:
            return True
        if self.is_over or (self.coming is not None and self.grace is None):
            return False
        is_closed = self.is_held_back or not self.member.takes_holders
        if self.free is None:
            return True
        return bool(self.free.key) and self.is_closed_free == is_closed

    @property
    def is_closed_free(self) -> bool:
        """Whether it is free and nobody may have it, as is written down."""
        return self.free is not None and self.bound is not None and self.free.key == self.bound.key

    def guards(self, keys: Keys) -> Iterator[Json]:
        """That nothing of it has changed since."""
        name = self.member.name
        yield unchanged(keys.name(name), revision_in(self.taken))
        yield unchanged(keys.member(name), revision_in(self.fact))
        if self.holding is not None:
            yield unchanged(self.holding.held.key, self.holding.held.mod_revision)
        elif self.free is not None and self.free.key:
            yield unchanged(self.free.key, self.free.mod_revision)
        elif self.member.pool is not None:
            key = keys.resource(self.member.pool, name)
            yield unchanged(key, revision_in(self.resource))


class MembersView(NamedTuple):
    """Some names, and what there is beside.

    Args:
        revision: Etcd's.
        names: As they were asked for.
        pools: What there is beside the names.
        belonging: Where that is written.
        records: The pools' own keys, by type; also of those that are being made.
    """

    revision: int
    names: tuple[NameView, ...]
    pools: Pools
    belonging: KeyValue | None
    records: Mapping[str, KeyValue]

    def orphaned(self) -> set[str]:
        """The types of deleted pools of which something is left, and some name with it."""
        taken = [view.taken for view in self.names]
        return {type_in(kv) for kv in taken if kv is not None} - set(self.records)

    def run_out(self) -> set[str]:
        """The types of the pools where some name is held by a claim that has run out."""
        return {
            view.member.pool
            for view in self.names
            if view.holding is not None
            and not view.holding.is_alive
            and view.member.pool is not None
        }


def see(
    gateway: Gateway,
    keys: Keys,
    names: Sequence[str],
    *,
    released: Mapping[str, tuple[str, int]] | None = None,
) -> MembersView:
    """See what is written down of some names.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        names: Which.
        released: Those of them whose claim is just about to end, each with who had it, and how
            often it went from one holder to another.
    """
    parts = [names[at : at + SEEN_AT_ONCE] for at in range(0, len(names), SEEN_AT_ONCE)] or [()]
    views = [_Looking(gateway, keys, part, released or {}).see() for part in parts]
    return views[-1]._replace(names=tuple(each for view in views for each in view.names))


class _Looking:
    """One look, which reads as often as it has to.

    Args: as of `see`; the names are few enough for one request.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        names: Sequence[str],
        released: Mapping[str, tuple[str, int]],
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._names = names
        self._released = released
        self._points: dict[str, None] = {}
        self._held_in: dict[str, None] = {}
        self._found: dict[str, KeyValue] = {}
        self._holding: dict[str, Holding] = {}
        self._unread = 0  # what there was to be read beside in this round

    def see(self) -> MembersView:
        for name in self._names:
            self._points.update({self._keys.name(name): None, self._keys.member(name): None})
        while True:
            self._unread = 0
            view = self._read()
            if not self._unread:
                return view

    def _read(self) -> MembersView:
        keys = self._keys
        helds = [read_all(keys.helds(each)) for each in self._held_in]
        alives = [read_all(keys.alives(each), keys_only=True) for each in self._held_in]
        outcome = self._gateway.read(
            read(keys.belonging()),
            read_all(keys.pools()),
            *helds,
            *alives,
            *map(read, self._points),
        )
        belonging, pools, *rest = outcome.answers
        number = len(helds)
        self._note_claims(rest[:number], rest[number : 2 * number])
        self._found = {kv.key: kv for found in rest[2 * number :] for kv in found.items}
        records = {name_in(kv): kv for kv in pools.items}
        types = frozenset(pool_type for pool_type, kv in records.items() if not kv.value)
        return MembersView(
            outcome.revision,
            tuple(self._name(name, records) for name in self._names),
            parse_belonging(belonging.first, types),
            belonging.first,
            records,
        )

    def _note_claims(self, helds: Sequence[Found], alives: Sequence[Found]) -> None:
        self._holding = {}
        for held, alive in zip(helds, alives):
            living = {etcd_lease_id_in(kv) for kv in alive.items}
            for kv in held.items:
                claim = parse_claim(kv)
                holding = Holding(claim, kv, claim.etcd_lease_id in living)
                self._holding.update((name, holding) for name in claim.names)

    def _point(self, key: str) -> KeyValue | None:
        """What is there; not yet, if that wasn't asked: then one has to read again."""
        if key not in self._points:
            self._points[key] = None
            self._unread += 1
        return self._found.get(key)

    def _name(self, name: str, records: Mapping[str, KeyValue]) -> NameView:
        keys, unread = self._keys, self._unread
        taken, fact = self._point(keys.name(name)), self._point(keys.member(name))
        pool = None if taken is None else type_in(taken)
        if pool is None or pool not in records:
            return NameView(parse_member(fact, name, None), taken, fact)
        member = parse_member(fact, name, pool)
        resource = self._point(keys.resource(pool, name))
        bound = self._point(keys.bound(pool, name))
        view = NameView(member, taken, fact, resource, bound=bound)
        if member.lifetime is not None:
            view = view._replace(life=self._point(keys.life(pool, name)))
        if member.by_default:
            coming, grace = keys.coming(pool, name), keys.grace(pool, name)
            view = view._replace(coming=self._point(coming), grace=self._point(grace))
        return self._with_holder(view, pool) if self._unread == unread else view

    def _with_holder(self, view: NameView, pool: str) -> NameView:
        keys, name = self._keys, view.member.name
        nowhere = Free("", 0, name, None, 0)
        if name in self._released:
            last_holder, transitions = self._released[name]
            free = nowhere._replace(last_holder=last_holder, transitions=transitions)
            return view._replace(free=free)
        if view.resource is None:
            return view._replace(free=nowhere)
        free_kv = self._point(keys.free(pool, last_fence(view.resource), name))
        if free_kv is not None:
            return view._replace(free=parse_free(free_kv))
        bound = None if view.bound is None else parse_bound(view.bound)
        if view.bound is not None and bound is not None and bound.is_free:
            return view._replace(free=free_of(bound, view.bound))
        if pool not in self._held_in:
            self._held_in[pool] = None
            self._unread += 1
        holding = self._holding.get(name)
        if holding is None:
            return view._replace(free=nowhere)
        member = view.member._replace(holder=holding.claim.holder_identity)
        return view._replace(member=member, holding=holding)
