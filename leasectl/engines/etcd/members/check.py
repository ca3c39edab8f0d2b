"""Check memberships for contradictions, and repair them.

Each step writes all of it in one transaction; so nothing of ours leaves it in disorder, whenever it
is killed. But people write to etcd by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    delete,
    read_all,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.key_values import name_in, type_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import (
    parse_bound,
    parse_member,
    parse_properties,
)
from leasectl.engines.etcd.members.stock import closed_alike, parse_closed, stock_writes
from leasectl.engines.etcd.records import last_fence, parse_claim
from leasectl.engines.membership import Member

# Below which there is something of a name in a pool.
_KINDS = ("resource", "free", "bound", "closed", "property", "life", "coming", "grace")


class Disorder(NamedTuple):
    """What doesn't agree.

    Args:
        deleted: The types of pools that are only left in part.
        orphans: The keys that say something of a name that isn't so.
        astray: The names of which it isn't said that they are free, or that they aren't, or what
            is so of them isn't where those who wait read it.
    """

    deleted: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()


class MemberCheck:
    """Looks at the names below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        clear: Takes away what is left of a deleted pool.
        settle: Has names be written down as they have to be.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        *,
        clear: Callable[[str], object],
        settle: Callable[[Sequence[str]], object],
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._clear = clear
        self._settle = settle

    def find(self) -> Disorder:
        """See what doesn't agree; all of it as it is at one revision."""
        return self._read().disorder()

    def mend(self) -> Disorder:
        """Put it right; returns what wasn't."""
        seen = self._read()
        for pool_type in seen.deleted():
            self._clear(pool_type)
        for kv in seen.orphans():
            name = kv.key.rpartition("/")[2]
            guards = [unchanged(kv.key, kv.mod_revision), *self._guards(seen, name)]
            self._gateway.commit(guards, [delete(kv.key)])
        for name in seen.astray():  # have that be where those who wait read it which is so of it
            then = stock_writes(self._keys, Member(name), seen.members[name])
            self._gateway.commit(self._guards(seen, name), then)
        self._settle(sorted(seen.astray()))
        return seen.disorder()

    def expected(self) -> tuple[Member, ...]:
        """The names of which it is said where they belong, as if they were in no pool.

        In one read, where `EtcdMembers.members` looks at each name there is.
        """
        (found,) = self._gateway.read(read_all(self._keys.members())).answers
        facts = (parse_member(kv, name_in(kv), None) for kv in found.items)
        return tuple(each for each in facts if each.is_known)

    def _guards(self, seen: _Seen, name: str) -> list[dict[str, object]]:
        keys = [self._keys.name(name), self._keys.member(name)]
        return [dict(unchanged(key, revision_in(seen.by_key.get(key)))) for key in keys]

    def _read(self) -> _Seen:
        kinds = ("pool", "name", "member", "held", *_KINDS)
        answers = self._gateway.read(
            *(read_all(self._keys.below(kind, None)) for kind in kinds)
        ).answers
        return _Seen(self._keys, {kind: found.items for kind, found in zip(kinds, answers)})


class _Seen:
    """All that there is of names, by kind."""

    def __init__(self, keys: Keys, found: dict[str, tuple[KeyValue, ...]]) -> None:
        self._keys = keys
        self._found = found
        self._pools = {name_in(kv) for kv in found["pool"]}
        self._taken = {name_in(kv): type_in(kv) for kv in found["name"]}
        self.by_key = {kv.key: kv for items in found.values() for kv in items}
        facts = {name_in(kv): kv for kv in found["member"]}
        self.members = {
            name: parse_member(facts.get(name), name, self._pool_of(name))
            for name in {*self._taken, *facts}
        }
        claims = map(parse_claim, found["held"])
        self._held = {name for claim in claims for name in claim.names}

    def disorder(self) -> Disorder:
        """What doesn't agree."""
        orphans = tuple(kv.key for kv in self.orphans())
        return Disorder(tuple(sorted(self.deleted())), orphans, tuple(sorted(self.astray())))

    def deleted(self) -> set[str]:
        """Of which pools only the rest is there."""
        return set(self._taken.values()) - self._pools

    def orphans(self) -> Iterator[KeyValue]:
        """The keys that say what isn't so."""
        for kind in _KINDS:
            for kv in self._found[kind]:
                pool, name = self._place(kind, kv)
                is_of_pool = pool in self._pools and self._is_so(kind, kv, pool, name)
                if not is_of_pool and pool not in self.deleted():
                    yield kv
        for kv in self._found["member"]:
            if not self.members[name_in(kv)].is_known and name_in(kv) not in self._taken:
                yield kv

    def astray(self) -> Iterator[str]:
        """The names of which it isn't said well who may have them."""
        for name, member in self.members.items():
            if member.pool is not None and not self._is_in_order(member, member.pool):
                yield name

    def _pool_of(self, name: str) -> str | None:
        pool = self._taken.get(name)
        return pool if pool in self._pools else None

    def _place(self, kind: str, kv: KeyValue) -> tuple[str, str]:
        parts = kv.key[len(self._keys.below(kind, None)) :].split("/")
        return parts[0], parts[-1]

    def _is_so(self, kind: str, kv: KeyValue, pool: str, name: str) -> bool:
        member = self.members.get(name, Member(name))
        if kind == "coming" and kv.value:
            return member.moves_to == pool and member.pool == kv.value
        if member.pool != pool:
            return False
        resource = self.by_key.get(self._keys.resource(pool, name))
        if kind == "free":
            return resource is None or kv.key == self._keys.free(pool, last_fence(resource), name)
        if kind == "life":
            return member.lifetime is not None
        if kind in ("coming", "grace"):
            return member.by_default
        return True

    def _is_in_order(self, member: Member, pool: str) -> bool:
        keys, name = self._keys, member.name
        resource = self.by_key.get(keys.resource(pool, name))
        if resource is None:
            return False
        bound = self.by_key.get(keys.bound(pool, name))
        is_kept = bound is not None and parse_bound(bound).is_free
        is_free = keys.free(pool, last_fence(resource), name) in self.by_key
        if [is_kept, is_free, name in self._held].count(True) != 1:
            return False
        closed = self.by_key.get(keys.closed(pool, name))
        shown = Member(name) if closed is None else parse_closed(closed)
        what = self.by_key.get(keys.property(pool, name))
        properties = () if what is None else parse_properties(what)
        is_right = is_free is False or member.takes_holders
        return is_right and closed_alike(member, shown) and properties == member.properties
