"""A waiter: a thread, or a turn of one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence, Set
from typing import Protocol

from leasectl.engines.contract import Outlook, TicketGone
from leasectl.engines.facts import Standing
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.stock import StockedPool
from leasectl.engines.memory.store import MemoryStore
from leasectl.model import Claimant, Lease, Process, Ticket
from leasectl.system.clock import earliest
from leasectl.system.process_watch import ProcessWatch

# A time that is reached only by less than rounding isn't looked for again and again.
_LEAST_RISE_SECONDS = 0.001


class Waker(Protocol):
    """What ends one waiter's sleep; `Wakeup` is one.

    Attributes:
        fd: What the sleeper asks to be woken by: a descriptor, or, to whoever runs all turns
            himself and polls nothing, just a number.
    """

    fd: int

    def set(self) -> None:
        """Have the sleep end."""

    def clear(self) -> None:
        """The sleep has ended."""

    def close(self) -> None:
        """It isn't needed any more."""


class MemoryWaiter:
    """One request, as `Waiter`.

    Args:
        store: What is in the pools.
        claimant: Who asks, for what.
        new_waker: Makes what wakes it; called when it has to wait.
    """

    has_place = True

    def __init__(
        self, store: MemoryStore, claimant: Claimant, new_waker: Callable[[], Waker]
    ) -> None:
        self._store = store
        self._claimant = claimant
        self._new_waker = new_waker
        self._waker: Waker | None = None
        self._processes = ProcessWatch()
        self._place: Place | None = None
        self._counted = claimant.request.priority  # what its ticket counted with at the last look

    def check(self) -> None:
        with self._store.lock:
            self._check()

    def enqueue(self, *, again: bool = False) -> None:
        with self._store.lock:
            pool = self._store.pool(self._claimant.request.type) if again else self._check()
            self._place = self._store.tickets.queue_up(pool, self._claimant, self._wake)

    def claim(self) -> Outlook:
        assert self._place is not None, "enqueue() comes first"
        with self._store.lock:
            pool = self._store.tickets.pool_of(self._place)
            self._store.expire(pool)
            unmet = self._store.tickets.pass_unmet(pool, self._place)
            if unmet is not None:
                self._listen()
                return Outlook(impossible=str(unmet))
            self._store.calls.come(pool, self._place)
            self._pass_others(pool, self._place)
            is_head = pool.queue.is_turn_of(self._place)
            leases = self._claim_from(pool, self._place) if is_head else None
            if leases is not None:
                return Outlook(leases)
            self._listen()
            return self._outlook(pool, self._place, is_head=is_head)

    def standing(self) -> Standing:
        assert self._place is not None, "enqueue() comes first"
        with self._store.lock:
            pool = self._store.pool(self._claimant.request.type)
            self._store.expire(pool)
            standing = Standing(
                position=1 + pool.queue.count_better(self._place),
                others=len(pool.queue) - (self._place in pool.queue),
                held=len(pool.held),
                capacity=len(pool.stock),
                next_grant_at=pool.next_grant_at,
                pace_seconds=pool.settings.pace_seconds,
            )
            longest = next(iter(pool.held.values()), None)
            if longest is None or longest.lease is None:
                return standing
            return standing._replace(
                longest_holder=longest.lease.holder_identity,
                longest_since=longest.lease.acquire_time,
            )

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        assert self._waker is not None, "claim() comes first"
        self._processes.update(processes)
        return frozenset((self._waker.fd, *self._processes.fds())), self._processes.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._waker is not None and self._waker.fd in woken:
            self._waker.clear()
        ended = not woken.isdisjoint(self._processes.fds())
        self._processes.heard(woken)
        return ended

    def dequeue(self, why: str = "") -> None:
        with self._store.lock:
            if self._place is not None:
                with contextlib.suppress(TicketGone):
                    self._store.tickets.leave(self._place, why)
                self._free_claimed(self._place.ticket)

    def close(self) -> None:
        self._processes.close()
        if self._waker is not None:
            self._waker.close()

    def _check(self) -> StockedPool:
        """The pool that could meet the request; raises as `enqueue` where it couldn't."""
        pool = self._store.pool(self._claimant.request.type)
        self._store.expire(pool)
        unmet = self._store.tickets.unmet(pool, self._claimant.request)
        if unmet is not None:
            raise unmet.refusal()
        return pool

    def _listen(self) -> None:
        if self._waker is None:
            self._waker = self._new_waker()

    def _pass_others(self, pool: StockedPool, place: Place) -> None:
        """Tell those whom it has passed by waiting, if it has: nobody else does."""
        before, self._counted = self._counted, pool.queue.effective_priority(place)
        if self._counted > before:
            self._store.calls.join(pool, place)

    def _claim_from(self, pool: StockedPool, place: Place) -> tuple[Lease, ...] | None:
        chosen = self._store.take(pool, place)
        if chosen is None:
            return None
        pool.pay()
        self._store.tickets.leave(place)
        pool.last_grant += 1
        leases = tuple(self._store.grant(each, place.ticket, pool.last_grant) for each in chosen)
        self._store.events.granted(pool, place, leases)
        return leases

    def _outlook(self, pool: StockedPool, place: Place, *, is_head: bool) -> Outlook:
        """What there is to wait for: resources, the pace, or those before it, who may not come."""
        calls = self._store.calls
        first = pool.expiries.first() if is_head else None
        held_back = self._store.memberships.next_look(pool) if is_head else None
        expiry = earliest(None if first is None else first[0], held_back)
        is_behind = not pool.queue.is_alone(place) or calls.leaves_time_to_better(pool, place)
        overdue = calls.next_suspension(pool, place) if is_behind else None
        due = pool.next_grant_at if is_head and calls.has_enough(pool, place) else None
        if due is not None:
            calls.note(pool, place)
        rise = pool.queue.next_rise(place)
        risen = None if rise is None else pool.now() + max(rise, _LEAST_RISE_SECONDS)
        return Outlook(
            is_head=is_head,
            is_behind=is_behind,
            look_again_at=earliest(expiry, overdue, due, risen),
            next_grant_at=due,
        )

    def _free_claimed(self, ticket: Ticket) -> None:
        """Free what the ticket has become; other pools have tickets of the same number."""
        claimant = ticket.claimant
        claimed = [
            stock
            for stock in self._store.claims(claimant.claim_key)
            if stock.pool.type == claimant.request.type
            and stock.lease is not None
            and stock.lease.ticket == ticket.number
        ]
        self._store.free(claimed, "command")

    def _wake(self) -> None:
        """End its sleep; from any thread."""
        if self._waker is not None:
            self._waker.set()
