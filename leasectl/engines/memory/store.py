"""All pools of a process.

A claim is found by its key, a name by the pool that has it, the next free resource and the next
expiry by their rankings, a ticket by its number.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.facts import PoolSettings
from leasectl.engines.memory.calls import Calls
from leasectl.engines.memory.events import MemoryEvents
from leasectl.engines.memory.memberships import Memberships
from leasectl.engines.memory.queue import Place, Queue
from leasectl.engines.memory.stock import Stock, StockedPool
from leasectl.engines.memory.tickets import Tickets
from leasectl.model import Claimant, Lease, ReleasedBy, Ticket
from leasectl.system.clock import Clock


class MemoryStore:
    """The pools of one process. Whoever calls its methods holds the lock.

    Args:
        clock: Where times come from. Whoever moves it by hand calls `wake_all` afterwards.
        lost: Told of claims that expired or were taken by force.

    Attributes:
        lock: Reentrant; held while something is read or changed.
        clock: As given.
        pools: By type.
        calls: Who of those in their queues was called to claim.
        events: What happened in them.
        memberships: What is so of the names in them.
        tickets: Those in their queues.
    """

    def __init__(self, *, clock: Clock, lost: LostListener) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.pools: dict[str, StockedPool] = {}
        self.calls = Calls(clock)
        self.events = MemoryEvents(clock)
        self.memberships = Memberships(self)
        self.tickets = Tickets(self.calls, self.events, self.memberships, clock)
        self._lost = lost
        self._last_fence = 0  # one counter for all pools, so that none repeats
        self._pool_of: dict[str, StockedPool] = {}  # by the names of resources
        self._claims: dict[str, dict[str, Stock]] = {}  # by claim key, then by name

    def wake_all(self) -> None:
        """Have every waiter look again, as after its clock was moved."""
        with self.lock:
            for pool in self.pools.values():
                pool.wake_all()

    def pool(self, pool_type: str) -> StockedPool:
        """The pool of a type.

        Raises:
            NotFound: There is none.
        """
        if pool_type not in self.pools:
            raise refusals.no_pool(pool_type, list(self.pools))
        return self.pools[pool_type]

    # Resources

    def new_pool(self, pool_type: str, settings: PoolSettings) -> StockedPool:
        """Make a pool with nothing in it."""
        now = self.clock.elapsed
        pool = StockedPool(
            pool_type,
            settings,
            now,
            Queue(now, settings.aging_seconds, self.memberships.properties),
        )
        self.pools[pool_type] = pool
        return pool

    def check_untaken(self, new_in: str, names: Sequence[str]) -> None:
        """Refuse a name that is in some pool, or given twice."""
        seen: set[str] = set()
        for name in names:
            if name in self._pool_of:
                raise refusals.name_taken(name, self._pool_of[name].type)
            if name in seen:
                raise refusals.name_taken(name, new_in)
            seen.add(name)

    def names(self) -> list[str]:
        """All names in all pools."""
        return list(self._pool_of)

    def stock_of(self, name: str) -> Stock | None:
        """The resource of a name; None for one in no pool."""
        pool = self._pool_of.get(name)
        return None if pool is None else pool.stock[name]

    def put_in(self, pool: StockedPool, name: str, stock: Stock | None = None) -> Stock:
        """Put a resource into a pool, which nobody is told of yet.

        Args:
            pool: Which.
            name: Its name.
            stock: What it was in another pool that it has been taken out of; None for a new one.
        """
        stock = stock or Stock(pool, name)
        stock.pool = pool
        pool.stock[name] = stock
        self._pool_of[name] = pool
        return stock

    def take_out(self, stock: Stock) -> None:
        """Take a resource out of its pool; whoever holds it is told."""
        self.remove([stock])

    def look_anew(self, pool: StockedPool) -> None:
        """Have all who wait look, as what is in a pool has changed."""
        self.tickets.look_anew(pool)

    def offer(self, stock: Stock) -> None:
        """Have a resource be had by the best who waits for it, if nobody holds it and it may be."""
        if stock.claim_key is None and self.memberships.is_open(stock):
            stock.pool.free.put(stock.name, stock.lease.fence if stock.lease else 0)
            first = stock.pool.queue.first_for(stock.name)
            if first is not None:
                self.calls.call(stock.pool, first)
        else:
            stock.pool.free.drop(stock.name)

    def remove(self, stocks: Sequence[Stock]) -> None:
        """Take resources out of their pool; whoever holds one is told."""
        held = [stock for stock in stocks if stock.claim_key is not None]
        self.events.ended("lost", [each for each in held if each.ended is None], "removal")
        self.events.ended("released", held, "removal")
        for stock in stocks:
            claim_key = stock.claim_key
            if claim_key is not None:
                self._end(stock)
                self._lost(claim_key, [stock.name])
            stock.pool.free.drop(stock.name)
            del stock.pool.stock[stock.name]
            del self._pool_of[stock.name]
            self.memberships.gone(stock.name)

    # Claims

    def take(self, pool: StockedPool, place: Place) -> list[Stock] | None:
        """Take what a place asks for out of what is free for it; None when that is too little."""
        if not self.calls.could_claim(pool, place):
            return None
        if place.name is not None:
            pool.free.drop(place.name)
            return [pool.stock[place.name]]
        count = place.ticket.claimant.request.count
        kept = pool.queue.kept_from(place)
        names = pool.free.take(count, only=lambda name: pool.is_free_for(place, name, kept))
        return [pool.stock[name] for name in names]

    def grant(self, stock: Stock, ticket: Ticket, grant: int) -> Lease:
        """Make a claim on a resource that was taken out of what is free."""
        claimant = ticket.claimant
        now = self.clock.wall()
        last = stock.lease
        passed_on = last is not None and last.holder_identity != claimant.holder_identity
        self._last_fence += 1
        lease = Lease(
            name=stock.name,
            fence=self._last_fence,
            ticket=ticket.number,
            grant=grant,
            holder_identity=claimant.holder_identity,
            acquire_time=now,
            renew_time=now,
            lease_duration_seconds=claimant.request.ttl_seconds,
            lease_transitions=(last.lease_transitions if last else 0) + passed_on,
            labels=claimant.request.labels,
        )
        stock.claim_key, stock.claimant = claimant.claim_key, claimant
        stock.granted_at = self.clock.elapsed()
        stock.pool.held[stock.name] = stock
        self._claims.setdefault(claimant.claim_key, {})[stock.name] = stock
        self._give_full_time(stock, lease)
        return lease

    def claim_at_once(self, names: Sequence[str], claimant: Claimant) -> tuple[Lease, ...]:
        """Make a claim on names of one pool that nobody holds, past its queue and its pace."""
        pool = self._pool_of[names[0]]
        pool.last_ticket += 1
        pool.last_grant += 1
        ticket = Ticket(pool.last_ticket, claimant)
        for name in names:
            pool.free.drop(name)
        leases = tuple(self.grant(pool.stock[name], ticket, pool.last_grant) for name in names)
        now = self.clock.elapsed()
        self.events.granted(pool, Place(ticket, self.clock.wall(), now, lambda: None), leases)
        return leases

    def tell_lost(self, claim_key: str, names: Sequence[str]) -> None:
        """Tell a holder of what was taken away by force."""
        self._lost(claim_key, names)

    def claims(self, claim_key: str) -> list[Stock]:
        """What a claim key still finds, in the order of the fences."""
        now = self.clock.elapsed()
        current = []
        for stock in list(self._claims.get(claim_key, {}).values()):
            if stock.expires_at is not None and stock.expires_at <= now:
                self._lose(stock)
            elif stock.ended is None:
                current.append(stock)
        return current

    def end_early(self, stocks: Sequence[Stock], reason: str) -> None:
        """End claims of one key by force; those that expire are kept for their holder until then.

        The others are free at once.
        """
        self.events.ended("lost", stocks, "force", reason)
        for stock in stocks:
            if stock.expires_at is not None:
                stock.ended = reason
        self.free([stock for stock in stocks if stock.expires_at is None], "force")

    def kept(self, claim_key: str) -> list[Stock]:
        """What was ended by force of what a claim key found."""
        return [each for each in self._claims.get(claim_key, {}).values() if each.ended is not None]

    def renew(self, stock: Stock, *, ttl_seconds: float | None = None) -> None:
        """Give a claim its full time again, or that of a new ttl if it has one, and date it."""
        assert stock.lease is not None
        lease = stock.lease._replace(renew_time=self.clock.wall())
        if ttl_seconds is not None and lease.lease_duration_seconds is not None:
            lease = lease._replace(lease_duration_seconds=ttl_seconds)
            stock.pool.wake_all()  # it may be free sooner than they know
        self._give_full_time(stock, lease)

    def free(self, stocks: Sequence[Stock], by: ReleasedBy) -> None:
        """End claims of one key, and put their resources among the free ones."""
        taken = [stock for stock in stocks if stock.ended is not None]
        self.events.ended("released", [each for each in stocks if each.ended is None], by)
        self.events.ended("released", taken, "force")
        for stock in stocks:
            self._end(stock)
            if not self.memberships.released(stock):
                self.offer(stock)

    def expire(self, pool: StockedPool) -> None:
        """Free the claims of a pool whose time is over, and tell of them; memberships likewise."""
        self.memberships.expire(pool)
        now = self.clock.elapsed()
        while (first := pool.expiries.first()) is not None and first[0] <= now:
            self._lose(pool.stock[first[1]])

    def lose_if_over(self, stock: Stock) -> None:
        """Free a resource, and tell of it, if the time of its claim is over."""
        if stock.expires_at is not None and stock.expires_at <= self.clock.elapsed():
            self._lose(stock)

    def _lose(self, stock: Stock) -> None:
        claim_key, was_told = stock.claim_key, stock.ended is not None
        assert claim_key is not None
        if not was_told:
            self.events.ended("lost", [stock], "ttl")
        self.free([stock], "ttl")
        if not was_told:
            self._lost(claim_key, [stock.name])

    def _give_full_time(self, stock: Stock, lease: Lease) -> None:
        stock.lease = lease
        if lease.lease_duration_seconds is not None:
            stock.expires_at = self.clock.elapsed() + lease.lease_duration_seconds
            stock.pool.expiries.put(stock.name, stock.expires_at)

    def _end(self, stock: Stock) -> None:
        assert stock.claim_key is not None
        of_key = self._claims[stock.claim_key]
        del of_key[stock.name]
        if not of_key:
            del self._claims[stock.claim_key]
        del stock.pool.held[stock.name]
        stock.pool.expiries.drop(stock.name)
        stock.claim_key = stock.expires_at = stock.ended = stock.note = None
