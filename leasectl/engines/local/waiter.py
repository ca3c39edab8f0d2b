"""A waiter on the embedded pool: its ticket, and what it sleeps on.

That is a named pipe of its own and, behind another, the process of the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from leasectl.engines.contract import Outlook, TicketGone
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.wait_pipes import WaitPipe
from leasectl.model import Claimant, Lease, Process, Standing, Ticket
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead, this_process
from leasectl.system.process_watch import ProcessWatch

if TYPE_CHECKING:
    import sqlite3


class LocalWaiter:
    """One request, as `Waiter`. Its steps but `standing` belong inside `State.transaction`.

    Args:
        store: The pools.
        claimant: Who asks, for what.
        pipe: What wakes it.
        clock: Where times come from.
    """

    has_place = True

    def __init__(
        self, store: LocalStore, claimant: Claimant, pipe: WaitPipe, *, clock: Clock
    ) -> None:
        self._store = store
        self._queues = store.queues
        self._claimant = claimant
        self._request = claimant.request
        self._pipe = pipe
        self._clock = clock
        self._watch = ProcessWatch()
        self._number: int | None = None
        self._before: Process | None = None  # whose ticket is before its own

    def check(self) -> None:
        self._store.possible(self._request)

    def enqueue(self) -> None:
        self._number = self._store.possible(self._request)["last_ticket"] + 1
        self._queues.put(self._claimant, self._number, self._pipe.name)

    def claim(self) -> Outlook:
        before = self._living_before(self._ticket())
        leases = self._claim_free(self._ticket()) if before is None else None
        if leases is not None:
            return Outlook(leases)
        self._pipe.open()
        if before is not None:
            self._before = before.claimant.process
            return Outlook()
        self._before = None
        return Outlook(is_head=True, look_again_at=self._store.next_expiry(self._request.type))

    def standing(self) -> Standing:
        return self._store.standing(self._request.type, self._ticket().number)

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        others = [*processes, self._before] if self._before else processes
        # Not ourselves: in a process with thousands of waiters that would be a pidfd for each.
        self._watch.update([each for each in others if each != this_process()])
        return frozenset((self._pipe.fd, *self._watch.fds())), self._watch.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._pipe.fd in woken:
            self._pipe.clear()
        ended = not woken.isdisjoint(self._watch.fds())
        self._watch.heard(woken)
        return ended

    def dequeue(self) -> None:
        # A claim that was not recorded was undone with its transaction.
        if self._number is not None:
            self._queues.take_away(self._request.type, self._number, self._claimant.claim_key)

    def close(self) -> None:
        self._watch.close()
        self._pipe.close()

    def _ticket(self) -> Ticket:
        assert self._number is not None, "enqueue() comes first"
        return Ticket(self._number, self._claimant)

    def _living_before(self, own: Ticket) -> Ticket | None:
        """The nearest living ticket before its own; those of the dead are taken away."""
        while True:
            found = self._queues.last_two(self._request, own.number)
            mine = found[0] if found else None
            if mine is None or mine.number != own.number:
                raise TicketGone
            if mine.claimant.claim_key != own.claimant.claim_key:
                raise TicketGone
            if len(found) == 1:
                return None
            before = found[1]
            if not is_dead(before.claimant.process):
                return before
            self._queues.remove_dead(self._request.type, before.number)

    def _claim_free(self, own: Ticket) -> tuple[Lease, ...] | None:
        """Claim what is asked for, if that much is free, and take the ticket away."""
        request = self._request
        grant = self._store.possible(request)["last_grant"] + 1
        self._store.expire(request.type)
        resources = self._store.free_resources(request)
        if len(resources) < request.count:
            return None
        self._store.note_grant(request.type, grant)
        fences = self._store.draw_fences(len(resources))
        now = self._clock.wall()
        leases = tuple(
            _lease(own, resource, fence=fence, grant=grant, now=now)
            for resource, fence in zip(resources, fences)
        )
        for lease in leases:
            self._store.write_claim(self._claimant.claim_key, lease)
        self._queues.take_away(request.type, own.number)
        return leases


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
