"""Whether what became of names and pools can be right: judged write by write, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from leasectl.engines.cluster.objects import BelongingObject, PoolObject, ResourceObject
from leasectl.engines.kubernetes.encoding import parse_object
from leasectl.engines.rules.membership import Pools, belongs_to

Write = tuple[str, "dict[str, Any] | None"]


class MembershipJudge:
    """All objects, as one write after the other has them be.

    Attributes:
        violations: What was never to be so.
        entered: How often a name came into a pool.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.entered = 0
        self._resources: dict[str, ResourceObject] = {}
        self._pools: dict[str, PoolObject] = {}
        self._opened: set[str] = set()  # by their uids, the pools that were there in full once
        self._belonging: BelongingObject | None = None

    def take(self, writes: Iterable[Write]) -> MembershipJudge:
        """Judge these writes, after all before."""
        for number, (name, raw) in enumerate(writes):
            self.violations += (f"write {number}, {name}: {each}" for each in self._take(name, raw))
        return self

    def _take(self, name: str, raw: dict[str, Any] | None) -> Iterator[str]:
        found = None if raw is None else parse_object(raw)
        if found is None:
            yield from self._forget(name)
        elif isinstance(found, ResourceObject):
            yield from self._take_resource(name, found)
        elif isinstance(found, PoolObject):
            yield from self._take_pool(name, found)
        elif isinstance(found, BelongingObject):
            self._belonging = found
            yield from self._check_default()

    def _forget(self, name: str) -> Iterator[str]:
        self._resources.pop(name, None)
        pool = self._pools.pop(name, None)
        if pool is not None:
            left = [n for n, each in self._resources.items() if each.member.pool == pool.type]
            if left:
                yield f"pool {pool.type} is deleted with {left} in it"
            yield from self._check_default()

    def _take_resource(self, name: str, after: ResourceObject) -> Iterator[str]:
        before = self._resources.get(name)
        was = None if before is None else before.member
        self._resources[name] = after
        to, moves_to = after.member.pool, after.member.moves_to
        if to is not None and to != (was.pool if was else None):
            self.entered += 1
            yield from self._check_there(to, may_be_made=True)
            if was is None or was.moves_to != to:
                yield from self._check_belongs(after)
        if moves_to is not None and (was is None or was.moves_to != moves_to):
            yield from self._check_there(moves_to)

    def _take_pool(self, name: str, after: PoolObject) -> Iterator[str]:
        before = self._pools.get(name)
        self._pools[name] = after
        if after.state == "open":
            self._opened.add(after.id.uid)
        if before is not None and before.state == "making" and after.state == "open":
            for each in self._resources.values():
                if each.member.pool == after.type:
                    yield from self._check_belongs(each)
        if after.state == "gone":
            coming = [n for n, r in self._resources.items() if r.member.moves_to == after.type]
            if coming:
                yield f"pool {after.type} is gone, and {coming} are to move there"

    def _check_there(self, pool_type: str, *, may_be_made: bool = False) -> Iterator[str]:
        pool = next((each for each in self._pools.values() if each.type == pool_type), None)
        state = "none" if pool is None else pool.state
        # One that never was there in full has nothing in it for anybody, also when it is gone.
        is_made = pool is not None and state != "open" and pool.id.uid not in self._opened
        if state in ("none", "gone", "making") and not (is_made and may_be_made):
            yield f"comes to pool {pool_type}, of which the state is {state}"

    def _check_belongs(self, resource: ResourceObject) -> Iterator[str]:
        pools = Pools(frozenset()) if self._belonging is None else self._belonging.pools
        wanted, member = belongs_to(resource.member, pools), resource.member
        if wanted not in (None, member.pool):
            yield f"comes to pool {member.pool} and belongs to {wanted}"
        if member.by_default and member.pool != pools.default:
            yield f"comes by default to {member.pool}, and that is {pools.default}"

    def _check_default(self) -> Iterator[str]:
        default = None if self._belonging is None else self._belonging.pools.default
        if default is not None and default not in {each.type for each in self._pools.values()}:
            yield f"the default pool {default} isn't there"
