"""What better tickets leave for this one: pure functions.

One that could use all that it could keeps it from claiming at all, and is before it. Others keep
from it only what they could use, by its name or by what it is. One that can't be met by what is in
the pool now keeps nothing, as long as that is so. Where a pool has a pace the next grant is for who
has waited for it first, whatever he takes: who could claim but for that is before it as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.records import parse_ticket
from leasectl.engines.possible import Want
from leasectl.errors import CorruptState

if TYPE_CHECKING:
    from leasectl.engines.etcd.members.stock import Stock


class Rival(NamedTuple):
    """A ticket as far as it says what it takes.

    Args:
        kv: Where it was read.
        want: What it could use.
        count: How much of that it waits for.
    """

    kv: KeyValue
    want: Want
    count: int  # type: ignore[assignment]  # as in Request


class Supply(NamedTuple):
    """What was read of what is in a pool.

    Args:
        takers: How many resources there are that take holders.
        stock: What each of them is; None where that wasn't read.
        free: Those that nobody holds; None likewise.
    """

    takers: int
    stock: Stock | None = None
    free: Set[str] | None = None

    def could_use(self, want: Want, name: str) -> bool:
        """Tell whether a resource would do."""
        return want.could_use(name, () if self.stock is None else self.stock.properties(name))

    def could_meet(self, want: Want, count: int) -> bool:
        """Tell whether there is enough, held or not."""
        return count <= self.usable(want)

    def usable(self, want: Want) -> int:
        """How many would do, held or not; where that wasn't read, and by name, there is enough."""
        if want.name is not None or (want.where and self.stock is None):
            return sys.maxsize
        if not want.where:
            return self.takers
        assert self.stock is not None
        return want.count_usable(self.stock.members.values())


class Leave(NamedTuple):
    """What there is to take for a ticket, of what is free.

    Args:
        want: What it could use.
        names: What better tickets keep from it by name.
        wants: What they keep from it by what it is.
        supply: What there is.
    """

    want: Want = Want()
    names: Set[str] = frozenset()
    wants: Set[Want] = frozenset()
    supply: Supply = Supply(0)

    def has(self, name: str) -> bool:
        """Tell whether it may have a resource, once that is free."""
        if name in self.names or not self.supply.could_use(self.want, name):
            return False
        return not any(self.supply.could_use(each, name) for each in self.wants)


def leave(want: Want, better: Iterable[Rival], supply: Supply) -> Leave:
    """What better tickets leave to one, none of which keeps all from it."""
    kept = {each.want for each in better}
    names = frozenset(each.name for each in kept if each.name is not None)
    return Leave(want, names, frozenset(each for each in kept if each.where), supply)


class Competition(NamedTuple):
    """How a ticket stands among those that are better.

    Args:
        before: The nearest that keeps it from claiming; None where it is its turn.
        is_for_time: By the pool's pace only, and not by what it takes.
        others: If there is none, those that keep something else from others, or some of it.
        passes: It goes before one that can't be met now, and may be again.
    """

    before: KeyValue | None = None
    is_for_time: bool = False
    others: tuple[Rival, ...] = ()
    passes: bool = False


def rival(ticket: KeyValue) -> Rival:
    """What a ticket says; one that can't be read could use anything, and is always met."""
    try:
        entry = parse_ticket(ticket)
    except CorruptState:
        return Rival(ticket, Want(), 0)
    return Rival(ticket, Want(entry.name, entry.where), entry.count)


def met_of(rivals: Sequence[Rival], supply: Supply) -> list[Rival]:
    """Those who can be met by what is in the pool."""
    # Many want the same: each kind is counted once.
    usable = {want: supply.usable(want) for want in {each.want for each in rivals}}
    return [each for each in rivals if each.count <= usable[each.want]]


def compete(want: Want, better: Sequence[Rival], supply: Supply, *, is_paced: bool) -> Competition:
    """Who of the better tickets leaves what to one.

    Args:
        want: What it could use.
        better: All that are better, or some, the best first.
        supply: What there is.
        is_paced: Whoever could claim is before it.
    """
    met = met_of(better, supply)
    for at in reversed(range(len(met))):
        if _keeps_all(met[at].want, want, supply):
            return Competition(met[at].kv)
        if is_paced and _has_enough(met[at], met[:at], supply):
            return Competition(met[at].kv, is_for_time=True)
    return Competition(others=tuple(met), passes=len(met) < len(better))


def _keeps_all(theirs: Want, own: Want, supply: Supply) -> bool:
    """Tell whether it could use all that another could, as far as that is sure."""
    if own.name is not None:
        return supply.could_use(theirs, own.name)
    return not theirs.is_particular or theirs == own


def _has_enough(of: Rival, better: Sequence[Rival], supply: Supply) -> bool:
    """Tell whether enough is free for one, of what better ones leave to it."""
    free = supply.free or ()
    if of.want.name is not None and of.want.name not in free:
        return False
    if not all(each.want.is_particular for each in better):
        return False
    has = leave(of.want, better, supply).has
    return sum(map(has, free)) >= of.count
