"""The one pool algorithm, over every engine: first come, first served; all or nothing.

1. Put a ticket in the queue.
2. Wait until no living ticket is before mine, watching the nearest one only.
3. At the head, claim as soon as enough resources are free.
4. The claim takes the ticket away and so wakes the next. Whatever ends the wait otherwise takes
   the ticket away too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from leasectl.backends.base import Acquisition, Journal, Patience, Progress, Withdrawn
from leasectl.clock import Clock, earliest
from leasectl.durations import format_duration
from leasectl.engines.base import Engine, PoolAdmin, TicketExpired, TicketGone, Waiter
from leasectl.engines.wake import Nap, sleep_through
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    Interrupted,
    LeaseError,
    NoLease,
    Unanswered,
)
from leasectl.liveness import Process
from leasectl.model import Claimant, Lease, Pool, Ticket

TEND_AGAIN_SECONDS = 1.0
ASK_AGAIN_SECONDS = 1.0


class _View(NamedTuple):
    """What a ticket's owner saw: the leases it got, or what to wait for.

    ``predecessor`` is None at the head of the queue, where ``processes`` and ``expiry`` count.
    """

    leases: tuple[Lease, ...] | None = None
    predecessor: Ticket | None = None
    processes: tuple[Process, ...] = ()
    expiry: float | None = None


class PoolBackend:
    """Leases from an engine's pools.

    Args:
        url: What chose it.
        engine: The store.
        pools: The same store's pools.
        clock: The engine's clock.
        remote: The store isn't part of the records' transactions.
    """

    def __init__(
        self,
        url: str,
        engine: Engine[Any],
        pools: PoolAdmin,
        *,
        clock: Clock,
        remote: bool = False,
    ) -> None:
        self.url = url
        self.remote = remote
        self._engine = engine
        self.pools = pools
        self._clock = clock

    def atomic(self) -> AbstractContextManager[object]:
        return self._engine.atomic()

    def withdraw(self, owner: str) -> None:
        self._engine.withdraw(owner)

    def release(self, owner: str, names: Sequence[str]) -> tuple[str, ...]:
        if names or not self.remote:
            return self._engine.free(owner, names)
        self._engine.withdraw(owner)
        return self._engine.free(owner)

    def renew(self, owner: str) -> tuple[str, ...]:
        return self._engine.renew(owner)

    def acquire(
        self, claimant: Claimant, journal: Journal, patience: Patience
    ) -> tuple[Lease, ...]:
        steps = self.acquisition(claimant, journal, patience)
        return sleep_through(steps, interrupts=patience.interrupts, now=self._clock.elapsed)

    def acquisition(self, claimant: Claimant, journal: Journal, patience: Patience) -> Acquisition:
        """What `acquire` does, as a generator of the naps in between."""
        start = self._clock.elapsed()
        waiter = self._engine.waiter(claimant)
        try:
            if self._engine.has_queue(claimant.request.type):
                waiter.open()  # it takes long, and now others needn't wait for it
            with self._engine.atomic():
                ticket, view = self._enter(claimant, waiter, journal, patience)
                if view.leases is not None:
                    return view.leases
                waiter.open()
            waiting = self._wait(ticket, view, waiter, journal, patience, start)
            return (yield from self._or_give_up(ticket, waiting, journal))
        finally:
            waiter.close()

    def _enter(
        self, claimant: Claimant, waiter: Waiter, journal: Journal, patience: Patience
    ) -> tuple[Ticket, _View]:
        """Get in the queue and look for the first time."""
        journal.enqueuing()
        ticket = None
        try:
            ticket = self._engine.enqueue(claimant, waiter)
            return ticket, self._look(ticket, journal, patience)
        except BaseException as reason:
            if not self._engine.undoes:
                self._leave(claimant, ticket, journal, reason)
            if not isinstance(reason, TicketGone):
                raise
            raise self._withdrawn(claimant) from None

    def _or_give_up(self, ticket: Ticket, waiting: Acquisition, journal: Journal) -> Acquisition:
        try:
            return (yield from waiting)
        except BaseException as reason:
            with self._engine.atomic():
                self._leave(ticket.claimant, ticket, journal, reason)
            if not isinstance(reason, TicketGone):
                raise
            raise self._withdrawn(ticket.claimant) from None

    def _leave(
        self,
        claimant: Claimant,
        ticket: Ticket | None,
        journal: Journal,
        reason: BaseException,
    ) -> None:
        """Get out of the queue; from a store that doesn't answer somebody else has to, later."""
        try:
            if isinstance(reason, BackendUnreachable) and not reason.asked:
                pass
            elif _is_silence(reason):
                journal.to_undo()  # it was waited for long enough
            elif ticket is None:
                self._engine.withdraw(claimant.owner)  # it may be there, and nobody told us
            else:
                self._engine.dequeue(ticket)
        except (LeaseError, Interrupted):
            journal.to_undo()
        journal.gave_up()

    def _withdrawn(self, claimant: Claimant) -> Withdrawn:
        pool_type = claimant.request.type
        self.pools.pools(pool_type)  # says so when the whole pool is gone
        return Withdrawn(f"{pool_type}: the request was released while it waited")

    def _look(self, ticket: Ticket, journal: Journal, patience: Patience) -> _View:
        """Claim if it is this ticket's turn; else tell what there is to wait for."""
        before_me = self._engine.predecessor(ticket)
        if before_me is not None:
            return _View(predecessor=before_me)
        leases = self._engine.claim(ticket)
        if leases is not None:
            self._record(ticket, leases, journal)
            return _View(leases=leases)
        expiry = self._engine.next_expiry(ticket.claimant.request.type)
        return _View(processes=tuple(patience.watched()), expiry=expiry)

    def _record(self, ticket: Ticket, leases: tuple[Lease, ...], journal: Journal) -> None:
        try:
            journal.granted(leases)
        except BaseException:
            if not self._engine.undoes:
                try:
                    self._engine.free(ticket.claimant.owner, [lease.name for lease in leases])
                except (LeaseError, Interrupted):
                    journal.to_undo()
            raise

    def _wait(
        self,
        ticket: Ticket,
        view: _View,
        waiter: Waiter,
        journal: Journal,
        patience: Patience,
        start: float,
    ) -> Acquisition:
        deadline = None if patience.wait_seconds is None else start + patience.wait_seconds
        next_report = self._clock.elapsed() if patience.report else None
        tended = False
        silence: BackendUnreachable | None = None
        while True:
            now = self._clock.elapsed()
            if deadline is not None and now >= deadline:
                raise silence or self._no_lease(ticket, now - start)
            if patience.report and next_report is not None and now >= next_report:
                next_report = now + patience.report_seconds
                if silence is None:
                    try:
                        patience.report(self._progress(ticket, now - start))
                    except BackendUnreachable as reason:
                        silence = self._outlast(reason, waiter, patience, silence)
            fds, ended = waiter.listen(predecessor=view.predecessor, processes=view.processes)
            if not ended or tended:
                # What couldn't be put right a moment ago is tried again, but not in a spin.
                again = now + TEND_AGAIN_SECONDS if ended else None
                ask = self._clock.elapsed() + ASK_AGAIN_SECONDS if silence else view.expiry
                woken = yield Nap(fds, earliest(deadline, next_report, ask, again))
                ended = waiter.heard(woken) or ended
            tended = ended and view.predecessor is None
            if tended:
                patience.tend()
            try:
                with self._engine.atomic():
                    view = self._look(ticket, journal, patience)
                silence = None
            except BackendUnreachable as reason:
                silence = self._outlast(reason, waiter, patience, silence)
            if view.leases is not None:
                return view.leases

    def _outlast(
        self,
        reason: BackendUnreachable,
        waiter: Waiter,
        patience: Patience,
        before: BackendUnreachable | None,
    ) -> BackendUnreachable:
        """Take it that the store doesn't answer, for as long as it may keep the waiter's place.

        Args:
            reason: Why it couldn't be asked.
            waiter: Whose place.
            patience: Whom to tell.
            before: What was told of this silence, if anything.
        """
        if isinstance(reason, TicketExpired) or not waiter.has_place:
            raise reason
        if before is None:
            patience.warn(f"{reason}; waiting on, as the place in the queue should be kept")
        return reason

    def _progress(self, ticket: Ticket, waited: float) -> Progress:
        (pool,) = self.pools.pools(ticket.claimant.request.type)
        longest = _longest_held(pool)
        return Progress(
            place=1 + sum(entry.ticket < ticket.number for entry in pool.queue),
            held=pool.held,
            capacity=pool.capacity,
            longest_holder=longest.holder_identity if longest else None,
            longest_held_seconds=self._clock.wall() - longest.acquire_time if longest else 0.0,
            waited_seconds=waited,
        )

    def _no_lease(self, ticket: Ticket, waited: float) -> NoLease:
        (pool,) = self.pools.pools(ticket.claimant.request.type)
        after = f" within {format_duration(waited)}" if waited >= 1 else ""
        others = sum(entry.ticket != ticket.number for entry in pool.queue)
        return NoLease(
            f'no lease of "{pool.type}"{after}: {pool.held} of {pool.capacity} held, '
            f"{others} others waiting; see who with: leasectl status -t {pool.type}"
        )


def _is_silence(reason: BaseException) -> bool:
    """Tell whether it would take long to ask the store for more."""
    if isinstance(reason, AccessRefused):
        return False
    return isinstance(reason, (BackendUnreachable, Unanswered))


def _longest_held(pool: Pool) -> Lease | None:
    leases = [resource.lease for resource in pool.resources if resource.lease is not None]
    return min(leases, key=lambda lease: lease.acquire_time, default=None)
