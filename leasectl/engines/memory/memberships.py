"""In which pool a name is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from leasectl.engines.event_words import membership_changes
from leasectl.engines.membership import (
    Member,
    Pools,
    Properties,
    after_lifetime,
    after_release,
)
from leasectl.engines.memory.events import MemoryEvents
from leasectl.engines.memory.stock import Stock, StockedPool
from leasectl.model import Process
from leasectl.system.clock import Clock, earliest
from leasectl.system.process import is_dead


class Stocks(Protocol):
    """What memberships need of the store whose names they are of.

    Attributes:
        clock: Where times come from.
        events: What happened.
        pools: By type.
    """

    clock: Clock
    events: MemoryEvents
    pools: dict[str, StockedPool]

    def names(self) -> list[str]:
        """All names in all pools."""

    def stock_of(self, name: str) -> Stock | None:
        """The resource of a name; None for one in no pool."""

    def put_in(self, pool: StockedPool, name: str, stock: Stock | None = None) -> Stock:
        """Put a resource into a pool, which nobody is told of yet."""

    def take_out(self, stock: Stock) -> None:
        """Take a resource out of its pool."""

    def offer(self, stock: Stock) -> None:
        """Have a resource be had, if it may be."""

    def look_anew(self, pool: StockedPool) -> None:
        """Have all who wait look, as what is in a pool has changed."""

    def lose_if_over(self, stock: Stock) -> None:
        """Free a resource if the time of its claim is over."""


class _End(NamedTuple):
    """When a membership is over: at a time on the elapsed clock, or with a process."""

    at: float | None
    process: Process | None


class Memberships:
    """The facts of one process's names. Whoever calls its methods holds the store's lock.

    Args:
        store: The pools.

    Attributes:
        belonging: Patterns and the default pool; the types in it are those of the last look.
    """

    def __init__(self, store: Stocks) -> None:
        self.belonging = Pools(frozenset())
        self._store = store
        self._facts: dict[str, Member] = {}  # without pool and holder, which the stock tells
        self._ends: dict[str, _End] = {}
        self._held_back: dict[str, float] = {}  # until when, on the elapsed clock

    def pools(self) -> Pools:
        """What there is beside the names."""
        return self.belonging._replace(types=frozenset(self._store.pools))

    def pool_deleted(self, pool_type: str) -> None:
        """A pool was deleted: it takes nothing any more, and what was to move there stays."""
        if self.belonging.default == pool_type:
            self.belonging = self.belonging._replace(default=None, grace_seconds=0.0)
        moving = [name for name, fact in self._facts.items() if fact.moves_to == pool_type]
        before = [self.member(name) for name in moving]
        self.write(before, [each._replace(moves_to=None) for each in before])

    def names(self) -> list[str]:
        """Of which anything is known."""
        return sorted({*self._facts, *self._store.names()})

    def member(self, name: str) -> Member:
        """What is known of a name."""
        fact, stock = self._facts.get(name, Member(name)), self._store.stock_of(name)
        if stock is None:
            return fact
        lease = stock.lease if stock.claim_key is not None else None
        holder = None if lease is None else lease.holder_identity
        return fact._replace(pool=stock.pool.type, holder=holder)

    def properties(self, name: str) -> Properties:
        """What a name is."""
        fact = self._facts.get(name)
        return () if fact is None else fact.properties

    def what_is_so(self, name: str) -> Member | None:
        """What is known of a name; None where that is nothing but that it is in its pool."""
        member = self.member(name) if name in self._facts else Member(name)
        return None if member._replace(pool=None, holder=None) == Member(name) else member

    def held_back_until(self, name: str) -> float | None:
        """Until when nobody gets a name, on the elapsed clock; None where somebody may."""
        return self._held_back.get(name)

    def ends_at(self, name: str) -> float | None:
        """When a name leaves its pool unless it joins again, on the elapsed clock."""
        end = self._ends.get(name)
        return None if end is None else end.at

    def write(self, before: Sequence[Member], after: Sequence[Member]) -> None:
        """Have that be so which has become of names, their pools included; have all who wait look.

        Args:
            before: What was known of each.
            after: What is to be known of each, in the same order.
        """
        changed = [(old, new) for old, new in zip(before, after) if new != old]
        for old, new in changed:
            self._put(old, new)
        for pool_type in dict.fromkeys(each.pool for change in changed for each in change):
            if pool_type is not None:
                self._store.look_anew(self._store.pools[pool_type])

    def _put(self, before: Member, after: Member) -> None:
        """Have a name be what has become of it, in the pool where that is, and be had there."""
        name, stock = after.name, self._store.stock_of(after.name)
        if stock is not None and after.pool != before.pool:
            self._store.take_out(stock)
        if after.pool is not None and after.pool != before.pool:
            stock = self._store.put_in(self._store.pools[after.pool], name, stock)
        self._note(after)
        self._follow(before, after)
        if after.pool is not None and stock is not None:
            self._store.offer(stock)

    def closed_in(self, pool: StockedPool) -> int:
        """How many of a pool's resources take no new holder."""
        return sum(
            name in pool.stock and not self.member(name).takes_holders for name in self._facts
        )

    def is_open(self, stock: Stock) -> bool:
        """Tell whether somebody may claim what nobody holds."""
        if not self._facts and not self._held_back:  # as in most processes
            return True
        return self.member(stock.name).takes_holders and stock.name not in self._held_back

    def released(self, stock: Stock) -> bool:
        """Do what a fact says to be done with a release that was made; tell whether it did."""
        if stock.name not in self._facts:
            return False
        before = self.member(stock.name)
        after = after_release(before)
        if after != before:
            self.write([before], [after])
            self._store.events.members_changed(membership_changes([before], [after]))
        return after != before

    def gone(self, name: str) -> None:
        """A name has left its pool; what is expected of it stays."""
        if name in self._facts:
            self._note(Member(name, expected=self._facts[name].expected))
        self._ends.pop(name, None)
        self._held_back.pop(name, None)

    def expire(self, pool: StockedPool) -> None:
        """Have those go whose time in a pool is over, and those be had that were held back."""
        now = self._store.clock.elapsed()
        for stock in self._coming(pool):
            self._store.lose_if_over(stock)
        for name, end in list(self._ends.items()):
            is_over = end.at is not None and end.at <= now
            if name in pool.stock and (is_over or is_dead(end.process)):
                before = self.member(name)
                after = after_lifetime(before)
                self.write([before], [after])
                self._store.events.members_changed(membership_changes([before], [after]))
        for name, until in list(self._held_back.items()):
            if name in pool.stock and until <= now:
                del self._held_back[name]
                self._store.offer(pool.stock[name])

    def next_look(self, pool: StockedPool) -> float | None:
        """When something can be had in a pool that is held back, or comes as its lease expires.

        On the elapsed clock; None for never.
        """
        until = [until for name, until in self._held_back.items() if name in pool.stock]
        return earliest(*until, *(stock.expires_at for stock in self._coming(pool)))

    def _coming(self, pool: StockedPool) -> list[Stock]:
        """What comes to a pool with its release in another."""
        names = [name for name, fact in self._facts.items() if fact.moves_to == pool.type]
        found = map(self._store.stock_of, names)
        return [stock for stock in found if stock is not None]

    def _note(self, member: Member) -> None:
        fact = member._replace(pool=None, holder=None)
        if fact == Member(member.name):
            self._facts.pop(member.name, None)
        else:
            self._facts[member.name] = fact

    def _follow(self, before: Member, after: Member) -> None:
        """Keep the times that belong to a fact."""
        name, now = after.name, self._store.clock.elapsed()
        if after.lifetime is None:
            self._ends.pop(name, None)
        elif after.joined != before.joined:
            ttl = after.lifetime.ttl_seconds
            self._ends[name] = _End(None if ttl is None else now + ttl, after.lifetime.process)
        if not after.by_default:
            self._held_back.pop(name, None)
        elif not before.by_default and self.belonging.grace_seconds:
            self._held_back[name] = now + self.belonging.grace_seconds
