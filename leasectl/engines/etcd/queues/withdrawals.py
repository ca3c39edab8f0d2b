"""Remove tickets that never became a claim, and record why.

A dead waiter's ticket is deleted by etcd, which tells nobody. So each ticket is written down twice,
the second time attached to nothing (``queued/``). Whoever takes that away, with the claim or later,
is who tells of the ticket's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Json,
    KeyValue,
    absent,
    created_at,
    delete,
    none_created_after,
    read,
    read_all,
)
from leasectl.engines.etcd.key_values import claim_id_in, etcd_lease_id_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import parse_ticket
from leasectl.engines.event_words import WAITER_DIED, WITHDRAWN
from leasectl.errors import CorruptState
from leasectl.state.event import Event
from leasectl.system.clock import Clock

# Each takes two operations, and another for its event.
_AT_ONCE = 40


class Rest(NamedTuple):
    """What is left of a queue: few enough for one transaction, which takes them away.

    Args:
        guards: It is that still, and nothing more.
        events: Tell of it.
    """

    guards: list[Json]
    events: list[Event]


class EtcdWithdrawals:
    """Takes tickets away below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for each ticket.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, events: EtcdEvents, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._clock = clock

    def withdraw(self, claim_key: str, why: str) -> None:
        """Implements `Engine.withdraw`."""
        waiting = self._keys.all_waiting(claim_key)
        found, now = self._gateway.read(read_all(waiting), self._events.read_now()).answers
        self._events.note_now(now.first)
        for kv in found.items:
            claim_id = claim_id_in(kv)
            (ticket,) = self._gateway.read(read(self._keys.ticket(*claim_id))).answers
            if ticket.first is None:  # and so it can't become a claim
                self._gateway.revoke_unused(claim_id.etcd_lease_id)
            else:
                events = self._events_of(claim_id.pool_type, ticket.first, why or WITHDRAWN)
                self.drop(claim_id, claim_key, ticket.first.create_revision, events)

    def drop(self, claim_id: ClaimId, claim_key: str, number: int, events: Sequence[Event]) -> bool:
        """Take a ticket away, then its etcd lease: only if it hasn't become a claim on that.

        Args:
            claim_id: What it would be as a claim.
            claim_key: What it is found by.
            number: Its own.
            events: Tell of it, unless it is gone already.

        Returns:
            Whether it is no claim.
        """
        keys = self._keys
        ticket, queued = keys.ticket(*claim_id), keys.queued(*claim_id)
        then = [
            delete(ticket),
            delete(queued),
            delete(keys.waiting(claim_key, claim_id.etcd_lease_id)),
        ]
        guards = [absent(keys.held(*claim_id)), created_at(queued, number)]
        found = [read(keys.held(*claim_id))]
        outcome = self._events.commit(guards, then, found, events=events)
        is_claim = not outcome.succeeded and outcome.answers[0].first is not None
        if not is_claim:
            self._gateway.revoke_unused(claim_id.etcd_lease_id)
        return not is_claim

    def reap(self, pool_type: str) -> None:
        """Tell of tickets that have gone by themselves, if nobody has."""
        keys = self._keys
        queued, tickets = self._gateway.read(
            read_all(keys.queueds(pool_type)), read_all(keys.tickets(pool_type), keys_only=True)
        ).answers
        living = {etcd_lease_id_in(kv) for kv in tickets.items}
        for kv in queued.items:
            claim_id = ClaimId(pool_type, etcd_lease_id_in(kv))
            if claim_id.etcd_lease_id not in living:
                self._events.commit(
                    [created_at(kv.key, kv.create_revision)],
                    [delete(kv.key)],
                    events=self._events_of(pool_type, kv, WAITER_DIED),
                )

    def drop_most(self, pool_type: str, pool: KeyValue, why: str) -> Rest:
        """Take away the tickets of a pool, as long as it is there, but for so few at the end.

        Args:
            pool_type: Its type.
            pool: The pool as it was read.
            why: For people.
        """
        prefix = self._keys.tickets(pool_type)
        while True:
            outcome = self._gateway.read(read_all(prefix))
            (found,) = outcome.answers
            tickets = found.items[:_AT_ONCE]
            guards = [created_at(kv.key, kv.create_revision) for kv in tickets]
            events = [each for kv in tickets for each in self._events_of(pool_type, kv, why)]
            if len(found.items) <= _AT_ONCE:
                guards.append(none_created_after(prefix, outcome.revision))
                return Rest(guards, events)
            guards.append(created_at(pool.key, pool.create_revision))
            ids = map(etcd_lease_id_in, tickets)
            dropped = [delete(kv.key) for kv in tickets]
            dropped += [delete(self._keys.queued(pool_type, each)) for each in ids]
            self._events.commit(guards, dropped, events=events)

    def _events_of(self, pool_type: str, ticket: KeyValue, why: str) -> list[Event]:
        try:
            entry = parse_ticket(ticket)
        except CorruptState:  # it goes all the same
            return []
        return [event_facts.withdrawn(pool_type, entry, now=self._clock.wall(), why=why)]
