"""The embedded pool: tables in the state directory's database, no server, no polling."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from leasectl.engines.contract import LostListener, TicketGone
from leasectl.engines.local.store import LocalStore
from leasectl.model import Claimant, Lease, Ticket
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead

if TYPE_CHECKING:
    import sqlite3

    from leasectl.engines.local.waiter import PipeWaiter, Waiters


class LocalEngine:
    """The pools of one state directory.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Told, inside the transaction, of claims that expired or were taken by force.
    """

    undoes = True

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._store = LocalStore(state, lost=lost, clock=clock)
        self._queues = self._store.queues
        self._waiters: Waiters | None = None

    def atomic(self) -> AbstractContextManager[object]:
        return self._state.transaction()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return nullcontext()

    def has_queue(self, pool_type: str) -> bool:
        return self._queues.is_waited_for(pool_type)

    def waiter(self, claimant: Claimant) -> PipeWaiter:
        if self._waiters is None:
            from leasectl.engines.local.waiter import Waiters  # a release needs none

            self._waiters = Waiters(self._state)
        return self._waiters.get()

    def enqueue(self, claimant: Claimant, waiter: PipeWaiter) -> Ticket:
        number = self._store.possible(claimant.request)["last_ticket"] + 1
        self._queues.put(claimant, number, waiter.name)
        return Ticket(number, claimant)

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        request = ticket.claimant.request
        while True:
            found = self._queues.last_two(request, ticket.number)
            mine = found[0] if found else None
            if mine is None or mine.number != ticket.number:
                raise TicketGone
            if mine.claimant.claim_key != ticket.claimant.claim_key:
                raise TicketGone
            if len(found) == 1:
                return None
            before_me = found[1]
            if not is_dead(before_me.claimant.process):
                return before_me
            self._queues.remove_dead(request.type, before_me.number)

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        claimant = ticket.claimant
        request = claimant.request
        grant = self._store.possible(request)["last_grant"] + 1
        self._store.expire(request.type)
        resources = self._store.free_resources(request)
        if len(resources) < request.count:
            return None
        self._store.note_grant(request.type, grant)
        fences = self._store.draw_fences(len(resources))
        now = self._clock.wall()
        leases = tuple(
            _lease(ticket, resource, fence=fence, grant=grant, now=now)
            for resource, fence in zip(resources, fences)
        )
        for lease in leases:
            self._store.write_claim(claimant.claim_key, lease)
        self._queues.take_away(request.type, ticket.number)
        return leases

    def next_expiry(self, pool_type: str) -> float | None:
        return self._store.next_expiry(pool_type)

    def dequeue(self, ticket: Ticket) -> None:
        claimant = ticket.claimant
        self._queues.take_away(claimant.request.type, ticket.number, claimant.claim_key)

    def withdraw(self, claim_key: str) -> None:
        for pool_type, number, pipe in self._queues.tickets_of(claim_key):
            self._queues.take_away(pool_type, number)
            self._queues.wake([pipe])

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._store.free(claim_key, names)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        return self._store.renew(claim_key)


def _lease(ticket: Ticket, resource: sqlite3.Row, *, fence: int, grant: int, now: float) -> Lease:
    claimant = ticket.claimant
    is_handed_on = resource["holder_identity"] not in (None, claimant.holder_identity)
    return Lease(
        name=resource["name"],
        fence=fence,
        ticket=ticket.number,
        grant=grant,
        holder_identity=claimant.holder_identity,
        acquire_time=now,
        renew_time=now,
        lease_duration_seconds=claimant.request.ttl_seconds,
        lease_transitions=resource["lease_transitions"] + is_handed_on,
        labels=claimant.request.labels,
    )
