"""Pools in this process's memory: no files, no server, gone with the process.

It runs the pool algorithm where nothing else should matter, as in its own tests: threads are the
participants, time is whatever the given clock says, and the death of an owner is declared.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener, TicketGone
from leasectl.model import Claimant, Lease, Pool, Process, QueueEntry, Resource, Standing, Ticket
from leasectl.system.clock import Clock, earliest
from leasectl.system.process_watch import ProcessWatch


@dataclass
class _Place:
    """A ticket in a queue, since when (wall clock), and its owner's ear."""

    ticket: Ticket
    since: float
    waiter: MemoryWaiter


@dataclass
class _Stock:
    """A resource; ``lease`` is its last one, current while there is an owner."""

    name: str
    lease: Lease | None = None
    claim_key: str | None = None
    expires_at: float | None = None

    @property
    def fence(self) -> int:
        return self.lease.fence if self.lease else 0


@dataclass
class _Pool:
    stock: dict[str, _Stock] = field(default_factory=dict)
    queue: dict[int, _Place] = field(default_factory=dict)  # in the order of the tickets
    last_ticket: int = 0
    last_grant: int = 0


class MemoryEngine:
    """The pools of one process, as `Engine` and `PoolAdmin`; any number of threads may use it.

    Args:
        clock: Where times come from. Whoever moves it by hand calls `wake_all` afterwards.
        lost: Told of claims that expired or were taken by force.
    """

    undoes = False

    def __init__(self, *, clock: Clock, lost: LostListener) -> None:
        self._clock = clock
        self._lost = lost
        self._lock = threading.RLock()
        self._pools: dict[str, _Pool] = {}
        self._last_fence = 0  # one counter for all pools, so that none repeats

    def end_session(self, claim_key: str) -> None:
        """Declare that an owner has died: its ticket and its claims go with it."""
        with self._lock:
            self.withdraw(claim_key)
            self.free(claim_key)

    def wake_all(self) -> None:
        """Have every waiter look again, as after its clock was moved."""
        with self._lock:
            for pool in self._pools.values():
                _wake(pool.queue.values())

    # Engine

    def atomic(self) -> AbstractContextManager[object]:
        return self._lock

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def has_queue(self, pool_type: str) -> bool:
        with self._lock:
            return pool_type in self._pools and bool(self._pools[pool_type].queue)

    def waiter(self, claimant: Claimant) -> MemoryWaiter:
        return MemoryWaiter()

    def enqueue(self, claimant: Claimant, waiter: MemoryWaiter) -> Ticket:
        with self._lock:
            pool = self._possible(claimant)
            pool.last_ticket += 1
            ticket = Ticket(pool.last_ticket, claimant)
            pool.queue[ticket.number] = _Place(ticket, self._clock.wall(), waiter)
            return ticket

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        with self._lock:
            queue = self._queue_of(ticket)
            if ticket.number not in queue:
                raise TicketGone
            before = [number for number in queue if number < ticket.number]
            return queue[before[-1]].ticket if before else None

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        with self._lock:
            claimant = ticket.claimant
            pool = self._possible(claimant)
            self._expire(pool)
            chosen = _choose(pool, claimant)
            if len(chosen) < claimant.request.count:
                return None
            pool.last_grant += 1
            for stock in chosen:
                self._grant(stock, ticket, pool.last_grant)
            self.dequeue(ticket)
            return tuple(stock.lease for stock in chosen if stock.lease)

    def next_expiry(self, pool_type: str) -> float | None:
        with self._lock:
            pool = self._pools.get(pool_type, _Pool())
            return earliest(*(stock.expires_at for stock in pool.stock.values()))

    def dequeue(self, ticket: Ticket) -> None:
        with self._lock:
            queue = self._queue_of(ticket)
            if queue.pop(ticket.number, None):
                _wake([place for number, place in queue.items() if number > ticket.number][:1])

    def withdraw(self, claim_key: str) -> None:
        with self._lock:
            places = [place for pool in self._pools.values() for place in pool.queue.values()]
            for place in places:
                if place.ticket.claimant.claim_key == claim_key:
                    self.dequeue(place.ticket)
                    _wake([place])

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        with self._lock:
            freed = [
                (pool, stock)
                for pool, stock in self._claims_of(claim_key)
                if names is None or stock.name in names
            ]
            for pool, stock in freed:
                _free(pool, stock)
            return tuple(stock.name for _, stock in freed)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        with self._lock:
            held = [stock for _, stock in self._claims_of(claim_key)]
            for stock in held:
                assert stock.lease is not None
                stock.lease = stock.lease._replace(renew_time=self._clock.wall())
                stock.expires_at = self._expiry(stock.lease)
            return tuple(stock.name for stock in sorted(held, key=lambda stock: stock.fence))

    # PoolAdmin

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        with self._lock:
            types = sorted(self._pools) if pool_type is None else [pool_type]
            return tuple(self._show(each) for each in types)

    def standing(self, pool_type: str, ticket: int) -> Standing:
        (pool,) = self.pools(pool_type)
        return pool.standing(ticket)

    def create_pool(self, pool_type: str, names: Sequence[str]) -> None:
        with self._lock:
            if pool_type in self._pools:
                raise refusals.pool_exists(pool_type)
            self._check_untaken(pool_type, names)
            self._pools[pool_type] = _Pool()
            self.add_resources(pool_type, names)

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        with self._lock:
            pool = self._pool(pool_type)
            self._check_untaken(pool_type, names)
            pool.stock.update((name, _Stock(name)) for name in names)
            _wake_head(pool)

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        with self._lock:
            pool = self._pool(pool_type)
            self._expire(pool)
            for name in names:
                if name not in pool.stock:
                    raise refusals.no_resource(pool_type, name)
                stock = pool.stock[name]
                if stock.claim_key is not None and stock.lease is not None and not force:
                    raise refusals.resource_held(name, stock.lease.holder_identity)
            for name in dict.fromkeys(names):
                stock = pool.stock.pop(name)
                if stock.claim_key is not None:
                    self._lost(stock.claim_key, [name])
            # A waiter's request may have become impossible, so all of them look again.
            _wake(pool.queue.values())

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        with self._lock:
            shown = self._show(pool_type)
            if not force and (shown.held or shown.queue):
                raise refusals.pool_in_use(pool_type, shown.held, len(shown.queue))
            pool = self._pools[pool_type]
            self.remove_resources(pool_type, list(pool.stock), force=force)
            del self._pools[pool_type]

    def _pool(self, pool_type: str) -> _Pool:
        if pool_type not in self._pools:
            raise refusals.no_pool(pool_type, list(self._pools))
        return self._pools[pool_type]

    def _queue_of(self, ticket: Ticket) -> dict[int, _Place]:
        pool = self._pools.get(ticket.claimant.request.type, _Pool())
        place = pool.queue.get(ticket.number)
        # A pool that was made anew counts its tickets anew.
        return pool.queue if place is None or place.ticket == ticket else {}

    def _possible(self, claimant: Claimant) -> _Pool:
        request = claimant.request
        pool = self._pool(request.type)
        if request.count > len(pool.stock):
            raise refusals.too_few(request.type, len(pool.stock), request.count)
        if request.name is not None and request.name not in pool.stock:
            raise refusals.no_resource(request.type, request.name)
        return pool

    def _check_untaken(self, new_in: str, names: Iterable[str]) -> None:
        taken = {name: pool_type for pool_type, pool in self._pools.items() for name in pool.stock}
        for name in names:
            if name in taken:
                raise refusals.name_taken(name, taken[name])
            taken[name] = new_in

    def _grant(self, stock: _Stock, ticket: Ticket, grant: int) -> None:
        claimant = ticket.claimant
        now = self._clock.wall()
        last = stock.lease
        passed_on = last is not None and last.holder_identity != claimant.holder_identity
        self._last_fence += 1
        stock.claim_key = claimant.claim_key
        stock.lease = Lease(
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
        stock.expires_at = self._expiry(stock.lease)

    def _expiry(self, lease: Lease) -> float | None:
        duration = lease.lease_duration_seconds
        return None if duration is None else self._clock.elapsed() + duration

    def _expire(self, pool: _Pool) -> None:
        now = self._clock.elapsed()
        for stock in pool.stock.values():
            if stock.claim_key and stock.expires_at is not None and stock.expires_at <= now:
                claim_key = stock.claim_key
                _free(pool, stock)
                self._lost(claim_key, [stock.name])

    def _claims_of(self, claim_key: str) -> list[tuple[_Pool, _Stock]]:
        for pool in self._pools.values():
            self._expire(pool)
        return [
            (pool, stock)
            for pool in self._pools.values()
            for stock in pool.stock.values()
            if stock.claim_key == claim_key
        ]

    def _show(self, pool_type: str) -> Pool:
        pool = self._pool(pool_type)
        self._expire(pool)
        return Pool(
            pool_type,
            tuple(
                Resource(stock.name, stock.lease, stock.claim_key)
                if stock.claim_key is not None
                else Resource(stock.name)
                for stock in sorted(pool.stock.values(), key=lambda stock: stock.name)
            ),
            tuple(
                QueueEntry(
                    place.ticket.number,
                    place.ticket.claimant.holder_identity,
                    place.ticket.claimant.request.count,
                    place.since,
                    place.ticket.claimant.claim_key,
                )
                for place in pool.queue.values()
            ),
        )


class MemoryWaiter:
    """A waiter among the threads of this process, woken through a pipe of its own."""

    def __init__(self) -> None:
        self._watch = ProcessWatch()
        self._read_fd = self._write_fd = -1

    @property
    def has_place(self) -> bool:
        return True

    def open(self) -> None:
        if self._read_fd < 0:
            self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        if self._write_fd >= 0:
            with contextlib.suppress(BlockingIOError):  # it is full of wake-ups
                os.write(self._write_fd, b"!")

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        self._watch.update(processes)
        return frozenset((self._read_fd, *self._watch.fds())), self._watch.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._read_fd in woken:
            os.read(self._read_fd, 4096)
        ended = not woken.isdisjoint(self._watch.fds())
        self._watch.heard(woken)
        return ended

    def close(self) -> None:
        self._watch.close()
        if self._read_fd >= 0:
            os.close(self._read_fd)
            os.close(self._write_fd)
            self._read_fd = self._write_fd = -1


def _choose(pool: _Pool, claimant: Claimant) -> list[_Stock]:
    """The free resources that would do, least recently acquired first, as many as are wanted."""
    request = claimant.request
    free = [
        stock
        for stock in pool.stock.values()
        if stock.claim_key is None and request.name in (None, stock.name)
    ]
    return sorted(free, key=lambda stock: (stock.fence, stock.name))[: request.count]


def _free(pool: _Pool, stock: _Stock) -> None:
    stock.claim_key = stock.expires_at = None
    _wake_head(pool)


def _wake_head(pool: _Pool) -> None:
    _wake(list(pool.queue.values())[:1])


def _wake(places: Iterable[_Place]) -> None:
    for place in places:
        place.waiter.wake()
