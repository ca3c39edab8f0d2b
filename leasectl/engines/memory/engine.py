"""Pools in this process's memory: no files, no server, gone with the process.

It runs the pool algorithm where nothing else should matter, as in its own tests: threads are the
participants, time is whatever the given clock says, and the death of an owner is declared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Callable

from leasectl.engines.contract import TicketGone
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.store import MemoryStore, StockedPool
from leasectl.engines.memory.waiter import Bell, MemoryWaiter
from leasectl.model import Claimant, Lease, Ticket
from leasectl.system.wakeup import Wakeup


class MemoryEngine:
    """The pools of one process, as `Engine`; any number of threads may use it.

    Args:
        store: What is in them.
        new_wakeup: Makes what wakes a waiter.
    """

    undoes = False

    def __init__(self, store: MemoryStore, *, new_wakeup: Callable[[], Bell] = Wakeup) -> None:
        self._store = store
        self._new_wakeup = new_wakeup

    def end_session(self, claim_key: str) -> None:
        """Declare that an owner has died: its ticket and its claims go with it."""
        with self._store.lock:
            self.withdraw(claim_key)
            self.free(claim_key)

    def atomic(self) -> AbstractContextManager[object]:
        return self._store.lock

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def has_queue(self, pool_type: str) -> bool:
        with self._store.lock:
            pool = self._store.pools.get(pool_type)
            return pool is not None and len(pool.queue) > 0

    def waiter(self, claimant: Claimant) -> MemoryWaiter:
        return MemoryWaiter(self._new_wakeup)

    def enqueue(self, claimant: Claimant, waiter: MemoryWaiter) -> Ticket:
        with self._store.lock:
            pool = self._store.possible(claimant)
            pool.last_ticket += 1
            ticket = Ticket(pool.last_ticket, claimant)
            self._store.queue_up(pool, Place(ticket, self._store.clock.wall(), waiter))
            return ticket

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        with self._store.lock:
            before = self._pool_of(ticket).queue.before(ticket)
            return None if before is None else before.ticket

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        with self._store.lock:
            pool = self._store.possible(ticket.claimant)
            self._store.expire(pool)
            chosen = self._store.take(pool, ticket.claimant)
            if chosen is None:
                return None
            pool.last_grant += 1
            leases = tuple(self._store.grant(each, ticket, pool.last_grant) for each in chosen)
            self.dequeue(ticket)
            return leases

    def next_expiry(self, pool_type: str) -> float | None:
        with self._store.lock:
            pool = self._store.pools.get(pool_type)
            first = None if pool is None else pool.expiries.first()
            return None if first is None else first[0]

    def dequeue(self, ticket: Ticket) -> None:
        with self._store.lock, contextlib.suppress(TicketGone):
            self._store.leave(self._pool_of(ticket), ticket)

    def withdraw(self, claim_key: str) -> None:
        with self._store.lock:
            for place, pool in self._store.waiting(claim_key):
                self._store.leave(pool, place.ticket)
                place.waiter.wake()

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        with self._store.lock:
            freed = [
                stock
                for stock in self._store.claims(claim_key)
                if names is None or stock.name in names
            ]
            for stock in freed:
                self._store.free(stock)
            return tuple(stock.name for stock in freed)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        with self._store.lock:
            held = self._store.claims(claim_key)
            for stock in held:
                self._store.renew(stock)
            return tuple(stock.name for stock in held)

    def _pool_of(self, ticket: Ticket) -> StockedPool:
        pool = self._store.pools.get(ticket.claimant.request.type)
        if pool is None or ticket not in pool.queue:
            raise TicketGone
        return pool
