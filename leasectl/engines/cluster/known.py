"""The names and pools of a place, as one list shows them; what is to become of some.

A name is where its own object says; that counts as long as its pool is there. One that isn't
complete yet has nothing in it for anybody, nor has one that is deleted in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from leasectl.engines.cluster.objects import (
    BelongingObject,
    Kind,
    PoolObject,
    ResourceObject,
    Selection,
)
from leasectl.engines.cluster.place import Place
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import Member, Pools, check_unheld, pools_with_less
from leasectl.errors import InvalidRequest, NotMade
from leasectl.model import Lease

_NOT_THERE = ("making", "gone")
_BESIDE: tuple[Kind, ...] = ("pool", "belonging")


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
        """Return the deleted pools that have something left."""
        return sorted(each.type for each in self.objects.values() if each.state == "gone")

    @property
    def floor(self) -> int:
        """The version above which fences of a new pool have to be, after a restore."""
        seen = [each.floor for each in self.objects.values()]
        return max([0 if self.belonging is None else self.belonging.floor, *seen])

    def beside(self, other: Known) -> Known:
        """The same names, with what another has seen since beside them."""
        return other._replace(resources=self.resources)

    def _state_of(self, pool_type: str | None) -> str:
        found = None if pool_type is None else self.objects.get(pool_type)
        return "open" if found is None else found.state


def all_known(place: Place) -> Known:
    """All that is known now."""
    return _known(place, "resource", *_BESIDE)


def beside_names(place: Place) -> Known:
    """What there is now beside the names."""
    return _known(place, *_BESIDE)


def _known(place: Place, *kinds: Kind) -> Known:
    seen = place.objects.list(Selection(kinds=kinds))
    found = seen.items
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


class Update:
    """What is to become of some names, until all of it is written.

    Args:
        names: Which.
        decide: Says what is to become of each.
        is_claimed: They are all to be claimed with that.
        making: The pool that they are for, if it is being made; else None.

    Attributes:
        known: What it was decided by.
        left: The names that aren't written yet.
    """

    def __init__(
        self,
        names: Sequence[str],
        decide: Decide,
        *,
        is_claimed: bool = False,
        making: PoolObject | None = None,
    ) -> None:
        self.left = list(dict.fromkeys(names))
        self._names = tuple(names)
        self._decide = decide
        self._is_claimed = is_claimed
        self._making = making
        self._before: dict[str, Member] = {}
        self._after: dict[str, Member] = {}
        self._leases: dict[str, tuple[Lease, ...]] = {}

    def decide(self, known: Known) -> None:
        """Decide by what is known by now.

        Raises:
            LeaseError: What is refused.
        """
        self.known = known
        pools = self._pools(known)
        for name in self.left:
            taken = known.is_taken(name)
            if taken is not None and (self._making is None or taken != self._making.type):
                raise being_made(name, taken)
            self._before[name] = known.member(name)
            self._after[name] = self._decide(self._before[name], pools)
            if self._is_claimed:
                check_unheld([self._after[name]])

    def needs_flag(self, name: str) -> bool:
        """Tell whether more than its own object decides what becomes of a name."""
        before, after = self._before[name], self._after[name]
        there = self.known.resources.get(name)
        if after.pool is None or (there is not None and there.member == after):
            return False
        return after.pool != before.pool or after.moves_to not in (None, before.moves_to)

    def after(self, name: str) -> Member:
        """What is to become of it."""
        return self._after[name]

    def note_done(self, name: str, leases: tuple[Lease, ...]) -> None:
        """It is so now, and that was claimed with it."""
        self.left.remove(name)
        self._leases[name] = leases

    def pools_to_tell(self) -> Iterator[str]:
        """Return the pools whose waiters may be met by less, or by names that come."""
        for name in self._leases:
            before, after = self._before[name], self._after[name]
            yield from pools_with_less(before, after)
            if after.moves_to not in (None, before.moves_to):
                yield str(after.moves_to)

    def done(self) -> list[Member]:
        """Return the former memberships of the names that have changed."""
        return [self._before[n] for n in self._leases if self._after[n] != self._before[n]]

    def goes_to(self, name: str) -> list[str]:
        """Return the pools that a name comes to with this, or is to come to with its release."""
        before, after = self._before[name], self._after[name]
        is_new = self._is_claimed or after.pool != before.pool
        pools = [after.pool] if after.pool is not None and is_new else []
        if after.moves_to not in (None, before.moves_to):
            pools.append(str(after.moves_to))
        return pools

    def changes(self) -> tuple[list[Member], list[Member]]:
        """The same as `changes_of`, of those that are written."""
        return self.changes_of(self._leases)

    def changes_of(self, names: Iterable[str]) -> tuple[list[Member], list[Member]]:
        """What was so of some, and is to be, for who tells of it.

        Of a pool that is being made that is one thing, and told of when it is there.
        """
        written = [] if self._making is not None else list(names)
        return [self._before[each] for each in written], [self._after[each] for each in written]

    def leases(self) -> list[Lease]:
        """What was claimed with them so far."""
        return [lease for each in self._leases.values() for lease in each]

    def result(self) -> Updated:
        """What has become of them."""
        return Updated(
            tuple(self._before[name] for name in self._names),
            tuple(self._after[name] for name in self._names),
            tuple(lease for name in self._names for lease in self._leases[name]),
        )

    def _pools(self, known: Known) -> Pools:
        making = self._making
        if making is None:
            return known.pools
        there = known.objects.get(making.type)
        if there is None or (there.state, there.word) != (making.state, making.word):
            raise NotMade(
                f'pool "{making.type}" was deleted, or made by somebody else, before it was made '
                "in full"
            )
        return known.pools._replace(types=known.pools.types | {making.type})
