"""Pools in etcd: its leases give expiry, its transactions atomicity, its watches hand-off.

Each step is one transaction and leaves the store sound, so a process may be killed after any of
them: a ticket, and a claim that has a ttl, are attached to an etcd lease and go when it runs out.

A claim that has run out is still written down under ``held/`` with its ``alive/`` gone. Whoever
sees that puts its resources back among the free ones, and tells: `EtcdEngine.reap`.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from leasectl.clock import Clock
from leasectl.engines import refusals
from leasectl.engines.base import LostListener, TicketGone
from leasectl.engines.etcd_gateway import (
    Gateway,
    Json,
    KeyValue,
    LeaseGone,
    Outcome,
    absent,
    count,
    created_at,
    delete,
    present,
    put,
    read,
    read_all,
    read_last_created,
    unchanged,
)
from leasectl.engines.etcd_keys import (
    Claim,
    Free,
    Keys,
    check_count,
    encode_claim,
    encode_free,
    encode_ticket,
    fence,
    lease_in,
    name_in,
    number_in,
    parse_claim,
    parse_free,
    parse_ticket,
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
        lost: Told, by whoever notices, of claims that expired or were taken by force.
        clock: Where times come from.
    """

    undoes = False

    def __init__(self, gateway: Gateway, keys: Keys, *, lost: LostListener, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._lost = lost
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
        place = keys.place_of(claimant.owner)
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
            if held.count != alive.count:
                self.reap(request.type)
                continue
            if pool.first is None or pool.first.value:
                raise self._no_pool(request.type)
            if request.name is None and resources.count < request.count:
                raise refusals.too_few(request.type, resources.count, request.count)
            if len(free.items) < request.count:
                self._watch_pool(ticket, waiter, seen.revision)
                return None
            leases = self._take(
                ticket, waiter, pool.first, grants.first, tuple(map(parse_free, free.items))
            )
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
                self._give_back(claimant.request.type, lease, None)

    def withdraw(self, owner: str) -> None:
        (found,) = self._gateway.read(read_all(self._keys.all_waiting(owner))).answers
        for kv in found.items:
            self._drop_ticket(kv.value, owner, lease_in(kv))

    def free(self, owner: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        freed: list[tuple[int, str]] = []
        for pool_type, lease in self._owned(owner):
            wanted = None if names is None else frozenset(names)
            freed += self._give_back(pool_type, lease, wanted)
        return tuple(name for _, name in sorted(freed))

    def renew(self, owner: str) -> tuple[str, ...]:
        held: list[tuple[int, str]] = []
        for pool_type, lease in self._owned(owner):
            claim = self._renew(pool_type, lease)
            if claim is not None:
                held += zip(claim.fences, claim.names)
        return tuple(name for _, name in sorted(held))

    def reap(self, pool_type: str) -> None:
        """Free what is still written down of claims that have run out, and tell their owners."""
        keys = self._keys
        held, alive = self._gateway.read(
            read_all(keys.helds(pool_type), keys_only=True),
            read_all(keys.alives(pool_type), keys_only=True),
        ).answers
        living = {lease_in(kv) for kv in alive.items}
        for lease in sorted({lease_in(kv) for kv in held.items} - living):
            self._reap_one(pool_type, lease)

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
        return refusals.no_pool(pool_type, self.types())

    def types(self) -> list[str]:
        """The types of all pools there are, sorted."""
        (found,) = self._gateway.read(read_all(self._keys.pools())).answers
        return [name_in(kv) for kv in found.items if not kv.value]

    # Claiming

    def _take(
        self,
        ticket: Ticket,
        waiter: EtcdWaiter,
        pool: KeyValue,
        grants: KeyValue | None,
        chosen: Sequence[Free],
    ) -> tuple[Lease, ...] | None:
        """Claim these, unless one of them, or the pool, has changed."""
        keys, claimant = self._keys, ticket.claimant
        pool_type, lease = claimant.request.type, waiter.lease
        number = 1 if grants is None else 1 + int(number_in(grants))
        claim = self._claim_of(ticket, lease, number, chosen)
        renewed = self._clock.wall() - (self._clock.elapsed() - waiter.sent_at)
        held = keys.held(pool_type, lease)
        attached = 0 if claimant.request.ttl_seconds is None else lease
        guards = [
            created_at(keys.ticket(pool_type, lease), ticket.number),
            unchanged(keys.pool(pool_type), pool.mod_revision),
            unchanged(keys.grants(pool_type), 0 if grants is None else grants.mod_revision),
            *(unchanged(free.key, free.mod_revision) for free in chosen),
        ]
        then = [
            delete(keys.ticket(pool_type, lease)),
            delete(keys.waiting(claimant.owner, lease)),
            put(keys.grants(pool_type), str(number)),
            put(held, encode_claim(claim)),
            put(keys.alive(pool_type, lease), str(renewed), lease=attached),
            put(keys.owned(claimant.owner, lease), pool_type),
        ]
        for place, free in enumerate(chosen):
            then.append(delete(free.key))
            then.append(put(keys.resource(pool_type, free.name), str(place)))
        try:
            outcome = self._gateway.commit(guards, then, [read(held)])
        except LeaseGone:
            raise self._overdue(waiter) from None
        if outcome.succeeded:
            claim = claim._replace(revision=outcome.revision)
        else:
            (found,) = outcome.answers
            if found.first is None:
                return None
            claim = parse_claim(found.first)  # it had succeeded, and the answer was lost
        del self._waiters[ticket.number]
        if not attached:
            self.revoke(lease)
        return claim.leases(renewed)

    def _claim_of(self, ticket: Ticket, lease: int, grant: int, chosen: Sequence[Free]) -> Claim:
        claimant = ticket.claimant
        identity = claimant.holder_identity
        return Claim(
            lease=lease,
            owner=self._keys.place_of(claimant.owner),
            holder_identity=identity,
            names=tuple(free.name for free in chosen),
            places=tuple(range(len(chosen))),
            transitions=tuple(
                free.transitions + (free.last_holder not in (None, identity)) for free in chosen
            ),
            revision=0,
            ticket=ticket.number,
            grant=grant,
            acquire_time=self._clock.wall(),
            lease_duration_seconds=claimant.request.ttl_seconds,
            labels=claimant.request.labels,
        )

    # Giving back

    def _drop_ticket(self, pool_type: str, owner: str, lease: int) -> bool:
        """Take a ticket away, then its lease: only if it hasn't become a claim on that lease."""
        key = self._keys.ticket(pool_type, lease)
        held = self._keys.held(pool_type, lease)
        outcome = self._gateway.commit(
            [absent(held)], [delete(key), delete(self._keys.waiting(owner, lease))]
        )
        if outcome.succeeded:
            self.revoke(lease)
        return outcome.succeeded

    def revoke(self, lease: int) -> None:
        """End a lease that nothing is attached to; if that fails it ends by itself."""
        with contextlib.suppress(BackendUnreachable):
            self._gateway.revoke(lease)

    def _owned(self, owner: str) -> list[tuple[str, int]]:
        (found,) = self._gateway.read(read_all(self._keys.all_owned(owner))).answers
        return [(kv.value, lease_in(kv)) for kv in found.items]

    def _read_claim(self, pool_type: str, lease: int) -> tuple[KeyValue | None, KeyValue | None]:
        held, alive = self._gateway.read(
            read(self._keys.held(pool_type, lease)), read(self._keys.alive(pool_type, lease))
        ).answers
        return held.first, alive.first

    def _give_back(
        self, pool_type: str, lease: int, names: frozenset[str] | None
    ) -> list[tuple[int, str]]:
        """Free a claim, all of it or some; returns what was its own, with the fences."""
        while True:
            held, alive = self._read_claim(pool_type, lease)
            if held is None:
                return []
            if alive is None:
                self._reap_one(pool_type, lease)
                continue
            claim = parse_claim(held)
            gone = frozenset(claim.names) if names is None else names & frozenset(claim.names)
            freed = [(f, name) for f, name in zip(claim.fences, claim.names) if name in gone]
            if not freed or self._end(pool_type, claim, held, gone, is_alive=True):
                return freed

    def _reap_one(self, pool_type: str, lease: int) -> None:
        held, alive = self._read_claim(pool_type, lease)
        if held is None or alive is not None:
            return
        claim = parse_claim(held)
        if self._end(pool_type, claim, held, frozenset(claim.names), is_alive=False):
            self._lost(self._keys.owner_of(claim.owner), claim.names)

    def _end(
        self, pool_type: str, claim: Claim, held: KeyValue, names: frozenset[str], *, is_alive: bool
    ) -> bool:
        """Put a claim's resources back among the free ones, if it is still as it was read."""
        alive = self._keys.alive(pool_type, claim.lease)
        rest = claim.without(names)
        freed = [
            put(self._keys.free(pool_type, each, name), encode_free(claim.holder_identity, changes))
            for each, name, changes in zip(claim.fences, claim.names, claim.transitions)
            if name in names
        ]
        outcome = self._gateway.commit(
            [unchanged(held.key, held.mod_revision), present(alive) if is_alive else absent(alive)],
            [*freed, *self.rewrite(pool_type, held.key, rest)],
            [read(held.key)],
        )
        done = outcome.succeeded
        if outcome.repeated and not done:  # by the try whose answer was lost?
            found = outcome.answers[0].first
            done = found is None or names.isdisjoint(parse_claim(found).names)
        if done and not rest.names:
            self.revoke(claim.lease)
        return done

    def rewrite(self, pool_type: str, key: str, rest: Claim) -> Iterable[Json]:
        """What makes of a claim what is left of it."""
        if rest.names:
            return [put(key, encode_claim(rest))]
        return [
            delete(key),
            delete(self._keys.alive(pool_type, rest.lease)),
            delete(self._keys.owned(rest.owner, rest.lease)),
        ]

    def _renew(self, pool_type: str, lease: int) -> Claim | None:
        """Give a claim its full time again and date it; None when it has run out."""
        while True:
            held, alive = self._read_claim(pool_type, lease)
            if held is None:
                return None
            claim = parse_claim(held)
            expires = claim.lease_duration_seconds is not None
            now = self._clock.wall()
            if alive is None or (expires and not self._gateway.keep_alive(lease)):
                self._reap_one(pool_type, lease)
                continue
            key = self._keys.alive(pool_type, lease)
            with contextlib.suppress(LeaseGone):
                renewed = put(key, str(now), lease=lease if expires else 0)
                if self._gateway.commit([present(key)], [renewed]).succeeded:
                    return claim


def last_fence(resource: KeyValue) -> int:
    """The fence of a resource's last claim; 0 when it was never claimed."""
    return fence(resource.mod_revision, int(number_in(resource))) if resource.value else 0
