"""The names and pools of a namespace, as one list shows them.

A name is where its own object says; that counts as long as its pool is there. One that isn't
complete yet has nothing in it for anybody, nor has one that is deleted in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from leasectl.engines.kubernetes.objects.objects import BelongingObject, PoolObject, ResourceObject
from leasectl.engines.kubernetes.objects.reading import parse_object
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.membership import Member, Pools
from leasectl.errors import InvalidRequest

_NOT_THERE = ("making", "gone")
_BESIDE = ("pool", "belonging")


class Known(NamedTuple):
    """All that is known of names at one time.

    Args:
        version: That time.
        resources: By name.
        pools: What there is beside them; its types are the pools that names may come to.
        belonging: The object that says some of that; None where there is none.
        objects: The pools that there are or were, or will be, by type.
    """

    version: int
    resources: Mapping[str, ResourceObject]
    pools: Pools
    belonging: BelongingObject | None
    objects: Mapping[str, PoolObject]

    def member(self, name: str) -> Member:
        """What is known of a name, as anybody sees it."""
        found = self.resources.get(name)
        if found is None:
            return Member(name)
        if self._state_of(found.member.pool) in _NOT_THERE:
            return Member(name, expected=found.member.expected)
        return found.member

    def is_taken(self, name: str) -> str | None:
        """The pool that a name is being put into that isn't there yet; None for none."""
        found = self.resources.get(name)
        pool = None if found is None else found.member.pool
        return pool if self._state_of(pool) == "making" else None

    def gone(self) -> list[str]:
        """The pools of which something is left after somebody has deleted them."""
        return sorted(each.type for each in self.objects.values() if each.state == "gone")

    @property
    def floor(self) -> int:
        """The resourceVersion above which fences of a new pool have to be, after a restore."""
        seen = [each.floor for each in self.objects.values()]
        return max([0 if self.belonging is None else self.belonging.floor, *seen])

    def beside(self, other: Known) -> Known:
        """The same names, with what another has seen since beside them."""
        return other._replace(resources=self.resources)

    def _state_of(self, pool_type: str | None) -> str:
        found = None if pool_type is None else self.objects.get(pool_type)
        return "open" if found is None else found.state


def all_known(store: Store) -> Known:
    """All that is known now."""
    return _known(store, "resource", *_BESIDE)


def beside_names(store: Store) -> Known:
    """What there is now beside the names."""
    return _known(store, *_BESIDE)


def _known(store: Store, *kinds: str) -> Known:
    seen = store.all(*kinds)  # type: ignore[arg-type]
    found = list(map(parse_object, seen.items))
    belonging = next((each for each in found if isinstance(each, BelongingObject)), None)
    objects = {each.type: each for each in found if isinstance(each, PoolObject)}
    types = frozenset(each.type for each in objects.values() if each.state == "open")
    pools = Pools(types) if belonging is None else belonging.pools._replace(types=types)
    resources = {each.name: each for each in found if isinstance(each, ResourceObject)}
    return Known(seen.version, resources, pools, belonging, objects)


def being_made(name: str, pool_type: str) -> InvalidRequest:
    """Why a name can't be put into a pool that is about to be in another."""
    return InvalidRequest(
        f'resource "{name}" is being put into pool "{pool_type}", which somebody is making; if '
        f"they were killed, end that with: leasectl pool delete {pool_type}"
    )
