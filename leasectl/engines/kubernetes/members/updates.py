"""Decide about several names before any is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leasectl.engines.kubernetes.members.known import Known, being_made
from leasectl.engines.kubernetes.objects.objects import PoolObject
from leasectl.engines.membership import Member, Pools, check_unheld, pools_with_less
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.errors import NotMade
from leasectl.model import Lease


class Update:
    """What is to become of some names, until all of it is written.

    Args:
        names: Which.
        decide: Says what is to become of each.
        is_claimed: Somebody is to hold them all from then on.
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
        """The pools in which somebody may wait for what is no more, or comes when it is free."""
        for name in self._leases:
            before, after = self._before[name], self._after[name]
            yield from pools_with_less(before, after)
            if after.moves_to not in (None, before.moves_to):
                yield str(after.moves_to)

    def done(self) -> list[Member]:
        """What was known of those of which something else is so by now."""
        return [self._before[n] for n in self._leases if self._after[n] != self._before[n]]

    def changes(self) -> tuple[list[Member], list[Member]]:
        """What was so of those that are written, and is, for who tells of it.

        Of a pool that is being made that is one thing, and told of when it is there.
        """
        written = [] if self._making is not None else list(self._leases)
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
