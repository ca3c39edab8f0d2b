"""Tickets: how they come, go and are passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leasectl.engines.contract import TicketGone
from leasectl.engines.memory.calls import Calls
from leasectl.engines.memory.events import MemoryEvents
from leasectl.engines.memory.memberships import Memberships
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.stock import StockedPool
from leasectl.engines.possible import Unmet, unmet
from leasectl.model import Claimant, Request, Ticket
from leasectl.system.clock import Clock


class Tickets:
    """The tickets of one process's pools. Whoever calls its methods holds the store's lock.

    Args:
        calls: Who of them was called to claim.
        events: Where it is told of them.
        memberships: What is so of what they are for.
        clock: Where times come from.
    """

    def __init__(
        self, calls: Calls, events: MemoryEvents, memberships: Memberships, clock: Clock
    ) -> None:
        self._calls = calls
        self._events = events
        self._memberships = memberships
        self._clock = clock
        self._waiting: dict[str, dict[Place, StockedPool]] = {}  # by claim key

    def unmet(self, pool: StockedPool, request: Request) -> Unmet | None:
        """Why a pool can't meet a request; None if it could."""
        if request.name is None and not request.where:
            if request.count <= len(pool.stock) - self._memberships.closed_in(pool):
                return None
        elif request.name in pool.stock and self._memberships.member(request.name).takes_holders:
            return None
        return unmet(request, [self._memberships.member(name) for name in pool.stock])

    def queue_up(self, pool: StockedPool, claimant: Claimant, wake: Callable[[], object]) -> Place:
        """Put a ticket at the end of a pool's queue."""
        pool.last_ticket += 1
        ticket = Ticket(pool.last_ticket, claimant)
        place = Place(ticket, self._clock.wall(), self._clock.elapsed(), wake)
        pool.queue.append(place)
        self._calls.join(pool, place)
        self._waiting.setdefault(claimant.claim_key, {})[place] = pool
        self._events.queued(pool, place)
        return place

    def pool_of(self, place: Place) -> StockedPool:
        """The pool in whose queue a place is; TicketGone when it is in none any more."""
        try:
            return self._waiting[place.ticket.claimant.claim_key][place]
        except KeyError:
            raise TicketGone from None

    def leave(self, place: Place, why: str | None = None) -> None:
        """Take a ticket out of the queue that it is in, and wake those whose turn that makes it.

        Args:
            place: Where it is.
            why: It is given up; None for one that has become leases.
        """
        pool = self.pool_of(place)
        if why is not None:
            self._events.gave_up(pool, place, why)
        pool.queue.remove(place)
        self._calls.leave(pool, place)
        claim_key = place.ticket.claimant.claim_key
        of_key = self._waiting[claim_key]
        del of_key[place]
        if not of_key:
            del self._waiting[claim_key]
        self._calls.call_those_behind(pool, place)

    def send_away(self, places: Iterable[Place], why: str) -> None:
        """Take tickets out of their queues, and wake those who wait with them."""
        for place in list(places):
            self.leave(place, why)
            place.wake()

    def places_of(self, claim_key: str) -> Iterable[Place]:
        """Where the tickets with a claim key are."""
        return self._waiting.get(claim_key, ())

    def pass_unmet(self, pool: StockedPool, place: Place) -> Unmet | None:
        """Have a ticket keep nobody from anything while the pool can't meet its request."""
        why = self.unmet(pool, place.ticket.claimant.request)
        if why is not None and not pool.queue.is_suspended(place):
            pool.queue.suspend(place)
            self._calls.leave(pool, place)
            self._calls.call_those_behind(pool, place)
        return why

    def look_anew(self, pool: StockedPool) -> None:
        """Have all look, as what is in a pool has changed: some can't be met now, or can again."""
        for place in pool.queue:
            self.pass_unmet(pool, place)
            place.wake()
