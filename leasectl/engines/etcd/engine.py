"""The engine on etcd: its leases give expiry, its transactions atomicity, its watches hand-off.

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
from leasectl.engines.etcd.claims import EtcdClaims
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    absent,
    count,
    delete,
    present,
    put,
    read,
    read_all,
)
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.look import QueueView, look
from leasectl.engines.etcd.records import (
    Claim,
    Free,
    check_count,
    claim_id_in,
    encode_ticket,
    last_fence,
    parse_free,
    parse_ticket,
)
from leasectl.engines.etcd.renewals import EtcdRenewals
from leasectl.engines.etcd.shown import pool_types
from leasectl.engines.etcd.ticket import EtcdTicket
from leasectl.engines.etcd.waiting.session import WaitSession
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
        self._renewals = EtcdRenewals(gateway, keys, claims, clock=clock)
        self._session = WaitSession(gateway, clock)
        self._expiries: dict[str, float] = {}  # by type, as the last head of its queue saw
        self._tickets: dict[int, EtcdTicket] = {}  # by their numbers

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
        own = EtcdTicket(
            claimant.request,
            self._keys,
            etcd_lease_id=new_etcd_lease_id(),
            ttl_seconds=math.ceil(ttl),
            clock=self._clock,
        )
        return EtcdWaiter(own, self._session)

    def enqueue(self, claimant: Claimant, waiter: EtcdWaiter) -> Ticket:
        request = claimant.request
        check_count(request)
        try:
            self._check_possible(request)
        except BackendUnreachable as error:
            error.asked = False
            raise
        number = self._put_ticket(claimant, waiter.ticket)
        self._tickets[number] = waiter.ticket
        return Ticket(number, claimant)

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        own, request = self._own(ticket), ticket.claimant.request
        if own.is_head:
            return None  # whether it is still there, `claim` sees
        view = self._look(ticket, own)
        if view.before is None:
            own.reach_head(view)
            return None
        own.wait_behind(view)
        entry = parse_ticket(view.before)
        claim_key = self._keys.claim_key_of(entry.claim_key)
        return Ticket(entry.ticket, Claimant(claim_key, entry.holder_identity, request))

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        request, own = ticket.claimant.request, self._own(ticket)
        if own.is_unsure:
            leases = self._find_claim(ticket, own)
            if leases is not None:
                return leases
        guessed = own.guess_view()
        if guessed is not None:
            leases = self._take(ticket, own, guessed, tuple(map(parse_free, guessed.page)))
            if leases is not None:
                return leases
        while True:
            view = own.take_view() or self._look(ticket, own)
            if self._reap(request.type, view):
                continue
            free = self._free(request, view)
            if len(free) < request.count:
                own.wait_at_head(view)
                return None
            leases = self._take(ticket, own, view, free)
            if leases is not None:
                return leases

    def next_expiry(self, pool_type: str) -> float | None:
        return self._expiries.get(pool_type)  # of all others etcd tells

    def dequeue(self, ticket: Ticket) -> None:
        own = self._tickets.pop(ticket.number, None)
        if own is not None:
            claim_id = ClaimId(ticket.claimant.request.type, own.etcd_lease_id)
            if not self._drop_ticket(claim_id, ticket.claimant.claim_key):
                # It had become a claim whose answer never came.
                self._claims.give_back(claim_id)

    def withdraw(self, claim_key: str) -> None:
        (found,) = self._gateway.read(read_all(self._keys.all_waiting(claim_key))).answers
        for kv in found.items:
            self._drop_ticket(claim_id_in(kv), claim_key)

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._claims.free(claim_key, names)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        return self._renewals.renew(claim_key)

    def claim_keys(self) -> list[str]:
        """The claim keys of this state directory that have claims, sorted."""
        return self._claims.claim_keys()

    # Looking

    def _look(self, ticket: Ticket, own: EtcdTicket) -> QueueView:
        own.begin_look()
        view = look(self._gateway, self._keys, ticket, own.etcd_lease_id)
        if view.own is None or view.own.create_revision != ticket.number:
            raise self._overdue(own) if own.is_overdue else TicketGone()
        return view

    def _reap(self, pool_type: str, view: QueueView) -> bool:
        """Free what has run out, as was seen; returns whether one has to look again."""
        self._expiries.pop(pool_type, None)
        if not view.expired:
            return False
        reaped = self._claims.reap(pool_type)
        if reaped.next_at is not None and not reaped.any:
            self._expiries[pool_type] = reaped.next_at
        return reaped.any

    def _free(self, request: Request, view: QueueView) -> tuple[Free, ...]:
        """What of that which was seen is free to claim; to be asked at the head.

        Raises:
            NotFound, InvalidRequest: The request can't be granted any more, however long it waits.
        """
        if view.pool is None or view.pool.value:
            raise self._no_pool(request.type)
        if request.name is None:
            if view.resources < request.count:
                raise refusals.too_few(request.type, view.resources, request.count)
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

    def _own(self, ticket: Ticket) -> EtcdTicket:
        if ticket.number not in self._tickets:
            raise TicketGone
        return self._tickets[ticket.number]

    def _overdue(self, own: EtcdTicket) -> TicketExpired:
        return TicketExpired(
            f"lost the place in the queue: etcd had heard nothing of us for {own.ttl_seconds}s; "
            "ask again"
        )

    def _no_pool(self, pool_type: str) -> Exception:
        return refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))

    # Writing

    def _put_ticket(self, claimant: Claimant, own: EtcdTicket) -> int:
        """Put a ticket on an etcd lease of its own; returns its number."""
        keys, pool_type = self._keys, claimant.request.type
        key = keys.ticket(pool_type, own.etcd_lease_id)
        own.note_sent(self._clock.elapsed())
        self._gateway.grant(own.etcd_lease_id, own.ttl_seconds)
        unique_key = keys.with_state_id(claimant.claim_key)
        record = encode_ticket(claimant, unique_key, self._clock.wall())
        waiting = keys.waiting(claimant.claim_key, own.etcd_lease_id)
        try:
            outcome = self._gateway.commit(
                [absent(key), present(keys.pool(pool_type))],
                [
                    put(key, record, etcd_lease_id=own.etcd_lease_id),
                    put(waiting, pool_type, etcd_lease_id=own.etcd_lease_id),
                ],
                [read(key)],
            )
        except EtcdLeaseGone:
            raise self._overdue(own) from None
        if outcome.succeeded:
            return outcome.revision
        (found,) = outcome.answers
        if found.first is None:
            raise self._no_pool(pool_type)
        return found.first.create_revision  # put by an earlier try, whose answer was lost

    def _drop_ticket(self, claim_id: ClaimId, claim_key: str) -> bool:
        """Take a ticket away, then its etcd lease: only if it hasn't become a claim on that."""
        keys = self._keys
        outcome = self._gateway.commit(
            [absent(keys.held(*claim_id))],
            [
                delete(keys.ticket(*claim_id)),
                delete(keys.waiting(claim_key, claim_id.etcd_lease_id)),
            ],
        )
        if outcome.succeeded:
            self._claims.revoke(claim_id.etcd_lease_id)
        return outcome.succeeded

    def _take(
        self, ticket: Ticket, own: EtcdTicket, view: QueueView, chosen: Sequence[Free]
    ) -> tuple[Lease, ...] | None:
        renewed = own.renewed
        try:
            claim = self._claims.make(ticket, own.etcd_lease_id, renewed, view, chosen)
        except EtcdLeaseGone:
            raise self._overdue(own) from None
        except BackendUnreachable:
            own.doubt_claim()
            raise
        return None if claim is None else self._granted(ticket, own, claim, renewed)

    def _find_claim(self, ticket: Ticket, own: EtcdTicket) -> tuple[Lease, ...] | None:
        """What a claim got whose answer never came, with its full time again; None for nothing."""
        sent_at, renewed = self._clock.elapsed(), self._clock.wall()
        claimant = ticket.claimant
        claim_id = ClaimId(claimant.request.type, own.etcd_lease_id)
        claim = self._renewals.renew_claim(claim_id, claimant.claim_key).claim
        own.settle_claim()
        if claim is None:
            return None
        own.note_sent(sent_at)
        return self._granted(ticket, own, claim, renewed)

    def _granted(
        self, ticket: Ticket, own: EtcdTicket, claim: Claim, renewed: float
    ) -> tuple[Lease, ...]:
        del self._tickets[ticket.number]
        expires = claim.lease_duration_seconds is not None
        if expires and own.is_overdue:  # the answer took its time; somebody may have it by now
            self._claims.give_back(ClaimId(ticket.claimant.request.type, own.etcd_lease_id))
            raise self._overdue(own)
        return claim.leases(renewed)
