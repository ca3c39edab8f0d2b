"""Pools in etcd: its leases give expiry, its transactions atomicity, its watches hand-off.

Each step is one transaction and leaves the store sound, so a process may be killed after any of
them: a ticket, and a claim that has a ttl, are attached to an etcd lease and go when it runs out.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager

from leasectl.clock import Clock
from leasectl.engines import refusals
from leasectl.engines.base import TicketGone
from leasectl.engines.etcd_claims import EtcdClaims, pool_types
from leasectl.engines.etcd_gateway import Gateway, LeaseGone
from leasectl.engines.etcd_keys import Keys
from leasectl.engines.etcd_records import (
    Free,
    check_count,
    encode_ticket,
    last_fence,
    lease_in,
    parse_free,
    parse_ticket,
    type_in,
)
from leasectl.engines.etcd_requests import (
    KeyValue,
    Outcome,
    absent,
    count,
    delete,
    present,
    put,
    read,
    read_all,
    read_last_created,
)
from leasectl.engines.etcd_watch import EtcdWaiter, Target, Watched
from leasectl.errors import BackendUnreachable, InvalidRequest
from leasectl.model import Claimant, Lease, Request, Ticket

WAITER_TTL_SECONDS = 60.0
SHORTEST_TTL_SECONDS = 2.0


class EtcdEngine:
    """The pools below one prefix of a cluster.

    Owners are told apart by name, each within its place. A request without a ttl is held until it
    is given back; only its ticket has one, so that a dead waiter goes.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claims: The claims in it.
        clock: Where times come from.
    """

    undoes = False

    def __init__(self, gateway: Gateway, keys: Keys, claims: EtcdClaims, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._clock = clock
        self._waiters: dict[int, EtcdWaiter] = {}  # by the numbers of their tickets

    def atomic(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def has_queue(self, pool_type: str) -> bool:
        return False  # a watch needs no start of its own, so the question isn't worth a request

    def waiter(self, claimant: Claimant) -> EtcdWaiter:
        ttl = claimant.request.ttl_seconds or WAITER_TTL_SECONDS
        if ttl < SHORTEST_TTL_SECONDS:
            raise InvalidRequest(
                f"--ttl {ttl:g}s is too short for etcd: {SHORTEST_TTL_SECONDS:g}s at least"
            )
        # Signed in etcd, and 0 is none.
        lease = secrets.randbelow((1 << 63) - 1) + 1
        return EtcdWaiter(self._gateway, lease, math.ceil(ttl), self._clock)

    def enqueue(self, claimant: Claimant, waiter: EtcdWaiter) -> Ticket:
        request = claimant.request
        check_count(request)
        self._check_possible(request)
        keys, lease = self._keys, waiter.lease
        key = keys.ticket(request.type, lease)
        place = keys.with_place(claimant.owner)
        waiter.sent_at = self._clock.elapsed()
        self._gateway.grant(lease, waiter.ttl_seconds)
        record = encode_ticket(claimant, place, self._clock.wall())
        try:
            outcome = self._gateway.commit(
                [absent(key), present(keys.pool(request.type))],
                [
                    put(key, record, lease=lease),
                    put(keys.waiting(claimant.owner, lease), request.type, lease=lease),
                ],
                [read(key)],
            )
        except LeaseGone:
            raise self._overdue(waiter) from None
        number = outcome.revision
        if not outcome.succeeded:
            (found,) = outcome.answers
            if found.first is None:
                raise self._no_pool(request.type)
            number = found.first.create_revision
        self._waiters[number] = waiter
        return Ticket(number, claimant)

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        keys, waiter = self._keys, self._waiter_of(ticket)
        request = ticket.claimant.request
        own = keys.ticket(request.type, waiter.lease)
        outcome = self._gateway.read(
            read(own), read_last_created(keys.tickets(request.type), before=ticket.number)
        )
        mine, before = outcome.answers
        self._check_still_there(ticket, waiter, mine.first)
        if before.first is None:
            return None
        entry = parse_ticket(before.first)
        watched = (Watched(own, deletes=True), Watched(before.first.key, deletes=True))
        waiter.target = Target(watched, outcome.revision)
        owner = keys.owner_of(entry.owner)
        return Ticket(entry.ticket, Claimant(owner, entry.holder_identity, request))

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        request, waiter = ticket.claimant.request, self._waiter_of(ticket)
        while True:
            seen = self._look(ticket, waiter)
            pool, grants, resources, free, held, alive = seen.answers[1:]
            if held.count > alive.count:
                self._claims.reap(request.type)
                continue
            if pool.first is None or pool.first.value:
                raise self._no_pool(request.type)
            if request.name is None and resources.count < request.count:
                raise refusals.too_few(request.type, resources.count, request.count)
            if len(free.items) < request.count:
                self._watch_pool(ticket, waiter, seen.revision)
                return None
            chosen = tuple(map(parse_free, free.items))
            leases = self._take(ticket, waiter, pool.first, grants.first, chosen)
            if leases is not None:
                return leases

    def next_expiry(self, pool_type: str) -> float | None:
        return None  # etcd tells of them

    def dequeue(self, ticket: Ticket) -> None:
        waiter = self._waiters.pop(ticket.number, None)
        if waiter is not None:
            claimant, lease = ticket.claimant, waiter.lease
            if not self._drop_ticket(claimant.request.type, claimant.owner, lease):
                # It had become a claim whose answer never came.
                self._claims.give_back(claimant.request.type, lease)

    def withdraw(self, owner: str) -> None:
        (found,) = self._gateway.read(read_all(self._keys.all_waiting(owner))).answers
        for kv in found.items:
            self._drop_ticket(type_in(kv), owner, lease_in(kv))

    def free(self, owner: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._claims.free(owner, names)

    def renew(self, owner: str) -> tuple[str, ...]:
        return self._claims.renew(owner)

    def owners(self) -> list[str]:
        """The owners of this place that have claims, sorted."""
        return self._claims.owners()

    # Looking

    def _look(self, ticket: Ticket, waiter: EtcdWaiter) -> Outcome:
        keys, request = self._keys, ticket.claimant.request
        pool_type = request.type
        if request.name is None:
            page = read_all(keys.frees(pool_type), limit=request.count)
        else:
            page = read(self._free_key_of(request))
        seen = self._gateway.read(
            read(keys.ticket(pool_type, waiter.lease)),
            read(keys.pool(pool_type)),
            read(keys.grants(pool_type)),
            count(keys.resources(pool_type)),
            page,
            count(keys.helds(pool_type)),
            count(keys.alives(pool_type)),
        )
        self._check_still_there(ticket, waiter, seen.answers[0].first)
        return seen

    def _free_key_of(self, request: Request) -> str:
        """Where a named resource is when it is free. Only a claim, so only the head, moves it."""
        assert request.name is not None
        key = self._keys.resource(request.type, request.name)
        (found,) = self._gateway.read(read(key)).answers
        if found.first is None:
            raise refusals.no_resource(request.type, request.name)
        return self._keys.free(request.type, last_fence(found.first), request.name)

    def _watch_pool(self, ticket: Ticket, waiter: EtcdWaiter, revision: int) -> None:
        keys, pool_type = self._keys, ticket.claimant.request.type
        watched = (
            Watched(keys.ticket(pool_type, waiter.lease), deletes=True),
            Watched(keys.frees(pool_type), puts=True),
            Watched(keys.alives(pool_type), deletes=True),
            Watched(keys.pool(pool_type), puts=True, deletes=True),
        )
        waiter.target = Target(watched, revision)

    def _check_possible(self, request: Request) -> None:
        keys = self._keys
        pool, resources, named = self._gateway.read(
            read(keys.pool(request.type)),
            count(keys.resources(request.type)),
            read(keys.resource(request.type, request.name or "")),
        ).answers
        if pool.first is None or pool.first.value:
            raise self._no_pool(request.type)
        if resources.count < request.count:
            raise refusals.too_few(request.type, resources.count, request.count)
        if request.name is not None and named.first is None:
            raise refusals.no_resource(request.type, request.name)

    def _check_still_there(
        self, ticket: Ticket, waiter: EtcdWaiter, found: KeyValue | None
    ) -> None:
        if found is not None and found.create_revision == ticket.number:
            return
        if waiter.is_overdue:
            raise self._overdue(waiter)
        raise TicketGone

    def _waiter_of(self, ticket: Ticket) -> EtcdWaiter:
        if ticket.number not in self._waiters:
            raise TicketGone
        return self._waiters[ticket.number]

    def _overdue(self, waiter: EtcdWaiter) -> BackendUnreachable:
        return BackendUnreachable(
            f"lost the place in the queue: etcd had heard nothing of us for {waiter.ttl_seconds}s; "
            "ask again"
        )

    def _no_pool(self, pool_type: str) -> Exception:
        return refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))

    def _take(
        self,
        ticket: Ticket,
        waiter: EtcdWaiter,
        pool: KeyValue,
        grants: KeyValue | None,
        chosen: Sequence[Free],
    ) -> tuple[Lease, ...] | None:
        renewed = self._clock.wall() - (self._clock.elapsed() - waiter.sent_at)
        try:
            claim = self._claims.make(ticket, waiter.lease, renewed, pool, grants, chosen)
        except LeaseGone:
            raise self._overdue(waiter) from None
        if claim is None:
            return None
        del self._waiters[ticket.number]
        if claim.lease_duration_seconds is None:
            self._claims.revoke(waiter.lease)
        return claim.leases(renewed)

    def _drop_ticket(self, pool_type: str, owner: str, lease: int) -> bool:
        """Take a ticket away, then its lease: only if it hasn't become a claim on that lease."""
        key = self._keys.ticket(pool_type, lease)
        held = self._keys.held(pool_type, lease)
        outcome = self._gateway.commit(
            [absent(held)], [delete(key), delete(self._keys.waiting(owner, lease))]
        )
        if outcome.succeeded:
            self._claims.revoke(lease)
        return outcome.succeeded
