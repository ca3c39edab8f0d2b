"""Pools in etcd: its leases give expiry, its transactions atomicity, its watches hand-off.

Each step is one transaction and leaves the store sound, so a process may be killed after any of
them: a ticket, and a claim that has a ttl, are attached to an etcd lease and go when it runs out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

from leasectl.engines import refusals
from leasectl.engines.contract import TicketExpired, TicketGone
from leasectl.engines.etcd.claims import EtcdClaims, pool_types
from leasectl.engines.etcd.gateway.gateway import Gateway, LeaseGone, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    absent,
    count,
    delete,
    present,
    put,
    read,
    read_all,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.look import QueueView, look
from leasectl.engines.etcd.records import (
    Claim,
    Free,
    check_count,
    encode_ticket,
    etcd_lease_id_in,
    last_fence,
    parse_free,
    parse_ticket,
    type_in,
)
from leasectl.engines.etcd.waiting.session import WaitSession
from leasectl.engines.etcd.waiting.targets import at_the_head, behind
from leasectl.engines.etcd.waiting.waiter import EtcdWaiter
from leasectl.errors import BackendUnreachable, InvalidRequest
from leasectl.model import Claimant, Lease, Request, Ticket
from leasectl.system.clock import Clock

WAITER_TTL_SECONDS = 60.0
SHORTEST_TTL_SECONDS = 2.0


class EtcdEngine:
    """The pools below one prefix of a cluster.

    Claim keys are unique within their state directory. A request without a ttl is held until it
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
        self._session = WaitSession(gateway, clock)
        self._expiries: dict[str, float] = {}  # by type, as the last head of its queue saw
        self._waiters: dict[int, EtcdWaiter] = {}  # by the numbers of their tickets

    def atomic(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return self._gateway.limited(until)

    def has_queue(self, pool_type: str) -> bool:
        return False  # a watch needs no start of its own, so the question isn't worth a request

    def waiter(self, claimant: Claimant) -> EtcdWaiter:
        ttl = claimant.request.ttl_seconds or WAITER_TTL_SECONDS
        if ttl < SHORTEST_TTL_SECONDS:
            raise InvalidRequest(
                f"--ttl {ttl:g}s is too short for etcd: {SHORTEST_TTL_SECONDS:g}s at least"
            )
        return EtcdWaiter(self._session, new_etcd_lease_id(), math.ceil(ttl), self._clock)

    def enqueue(self, claimant: Claimant, waiter: EtcdWaiter) -> Ticket:
        request = claimant.request
        check_count(request)
        try:
            self._check_possible(request)
        except BackendUnreachable as error:
            error.asked = False
            raise
        keys, etcd_lease_id = self._keys, waiter.etcd_lease_id
        key = keys.ticket(request.type, etcd_lease_id)
        unique_key = keys.with_state_id(claimant.claim_key)
        waiter.sent_at = self._clock.elapsed()
        self._gateway.grant(etcd_lease_id, waiter.ttl_seconds)
        record = encode_ticket(claimant, unique_key, self._clock.wall())
        try:
            outcome = self._gateway.commit(
                [absent(key), present(keys.pool(request.type))],
                [
                    put(key, record, etcd_lease_id=etcd_lease_id),
                    put(
                        keys.waiting(claimant.claim_key, etcd_lease_id),
                        request.type,
                        etcd_lease_id=etcd_lease_id,
                    ),
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
        waiter, request = self._waiter_of(ticket), ticket.claimant.request
        if waiter.is_head:
            return None  # nobody gets in before it; whether it is still there, `claim` sees
        view = self._look(ticket, waiter)
        if view.before is None:
            waiter.is_head, waiter.fresh = True, view
            return None
        entry, key = parse_ticket(view.before), view.before.key
        waiter.target = behind(self._keys, request.type, waiter.etcd_lease_id, key, view.revision)
        claim_key = self._keys.claim_key_of(entry.claim_key)
        return Ticket(entry.ticket, Claimant(claim_key, entry.holder_identity, request))

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        request, waiter = ticket.claimant.request, self._waiter_of(ticket)
        if waiter.is_unsure:
            leases = self._find_claim(ticket, waiter)
            if leases is not None:
                return leases
        guessed = self._guess(ticket, waiter)
        if guessed is not None:
            leases = self._take(ticket, waiter, guessed, tuple(map(parse_free, guessed.page)))
            if leases is not None:
                return leases
        while True:
            view, waiter.fresh = waiter.fresh or self._look(ticket, waiter), None
            self._expiries.pop(request.type, None)
            if view.expired:
                reaped = self._claims.reap(request.type)
                if reaped.any:
                    continue
                if reaped.next_at is not None:
                    self._expiries[request.type] = reaped.next_at
            if view.pool is None or view.pool.value:
                raise self._no_pool(request.type)
            if request.name is None and view.resources < request.count:
                raise refusals.too_few(request.type, view.resources, request.count)
            free = self._free(request, view)
            if len(free) < request.count:
                keys, etcd_lease_id = self._keys, waiter.etcd_lease_id
                waiter.target = at_the_head(keys, request.type, etcd_lease_id, view.revision)
                waiter.before = view
                return None
            leases = self._take(ticket, waiter, view, free)
            if leases is not None:
                return leases

    def next_expiry(self, pool_type: str) -> float | None:
        return self._expiries.get(pool_type)  # of all others etcd tells

    def dequeue(self, ticket: Ticket) -> None:
        waiter = self._waiters.pop(ticket.number, None)
        if waiter is not None:
            claimant, etcd_lease_id = ticket.claimant, waiter.etcd_lease_id
            if not self._drop_ticket(claimant.request.type, claimant.claim_key, etcd_lease_id):
                # It had become a claim whose answer never came.
                self._claims.give_back(claimant.request.type, etcd_lease_id)

    def withdraw(self, claim_key: str) -> None:
        (found,) = self._gateway.read(read_all(self._keys.all_waiting(claim_key))).answers
        for kv in found.items:
            self._drop_ticket(type_in(kv), claim_key, etcd_lease_id_in(kv))

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._claims.free(claim_key, names)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        return self._claims.renew(claim_key)

    def claim_keys(self) -> list[str]:
        """The claim keys of this state directory that have claims, sorted."""
        return self._claims.claim_keys()

    # Looking

    def _look(self, ticket: Ticket, waiter: EtcdWaiter) -> QueueView:
        waiter.take_news()  # it is going to be older
        view = look(self._gateway, self._keys, ticket, waiter.etcd_lease_id)
        self._check_still_there(ticket, waiter, view.own)
        return view

    def _guess(self, ticket: Ticket, waiter: EtcdWaiter) -> QueueView | None:
        """What the head would see now, after what it saw before and has been told since.

        To save the request between a release and the next grant: if there is more to it, the
        guards of the claim don't hold, and one has to look after all.

        Returns:
            None when it can't be told, or when there isn't enough to take.
        """
        request, news = ticket.claimant.request, waiter.take_news()
        is_about_frees = all(kv.key.startswith(self._keys.frees(request.type)) for kv in news)
        if waiter.before is None or request.name is not None or not news or not is_about_frees:
            return None
        guessed = waiter.before.with_freed(news)
        if len(guessed.page) < request.count:
            return None
        return guessed._replace(page=guessed.page[: request.count])

    def _free(self, request: Request, view: QueueView) -> tuple[Free, ...]:
        """What of that which was seen is free to claim; to be asked at the head."""
        if request.name is None:
            return tuple(map(parse_free, view.page))
        if not view.page:
            raise refusals.no_resource(request.type, request.name)
        # It can't have moved since: only a claim moves it, so only the head.
        key = self._keys.free(request.type, last_fence(view.page[0]), request.name)
        (found,) = self._gateway.read(read(key)).answers
        return tuple(map(parse_free, found.items))

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

    def _overdue(self, waiter: EtcdWaiter) -> TicketExpired:
        return TicketExpired(
            f"lost the place in the queue: etcd had heard nothing of us for {waiter.ttl_seconds}s; "
            "ask again"
        )

    def _no_pool(self, pool_type: str) -> Exception:
        return refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))

    def _take(
        self, ticket: Ticket, waiter: EtcdWaiter, view: QueueView, chosen: Sequence[Free]
    ) -> tuple[Lease, ...] | None:
        assert view.pool is not None
        renewed = self._clock.wall() - (self._clock.elapsed() - waiter.sent_at)
        try:
            claim = self._claims.make(
                ticket, waiter.etcd_lease_id, renewed, view.pool, view.grants, chosen
            )
        except LeaseGone:
            raise self._overdue(waiter) from None
        except BackendUnreachable:
            waiter.is_unsure = True
            raise
        return None if claim is None else self._granted(ticket, waiter, claim, renewed)

    def _find_claim(self, ticket: Ticket, waiter: EtcdWaiter) -> tuple[Lease, ...] | None:
        """What a claim got whose answer never came, with its full time again; None for nothing."""
        sent_at, renewed = self._clock.elapsed(), self._clock.wall()
        claim = self._claims.renew_claim(ticket.claimant.request.type, waiter.etcd_lease_id)
        waiter.is_unsure = False
        if claim is None:
            return None
        waiter.sent_at = sent_at
        return self._granted(ticket, waiter, claim, renewed)

    def _granted(
        self, ticket: Ticket, waiter: EtcdWaiter, claim: Claim, renewed: float
    ) -> tuple[Lease, ...]:
        del self._waiters[ticket.number]
        expires = claim.lease_duration_seconds is not None
        if expires and waiter.is_overdue:  # the answer took its time; somebody may have it by now
            self._claims.give_back(ticket.claimant.request.type, waiter.etcd_lease_id)
            raise self._overdue(waiter)
        return claim.leases(renewed)

    def _drop_ticket(self, pool_type: str, claim_key: str, etcd_lease_id: int) -> bool:
        """Take a ticket away, then its lease: only if it hasn't become a claim on that lease."""
        key = self._keys.ticket(pool_type, etcd_lease_id)
        held = self._keys.held(pool_type, etcd_lease_id)
        outcome = self._gateway.commit(
            [absent(held)], [delete(key), delete(self._keys.waiting(claim_key, etcd_lease_id))]
        )
        if outcome.succeeded:
            self._claims.revoke(etcd_lease_id)
        return outcome.succeeded
