"""One acquisition from a pool, from its ticket to its leases or its end.

1. Put a ticket in the queue.
2. Wait until no living ticket is before mine, watching the nearest one only.
3. At the head, claim as soon as enough resources are free.
4. The claim takes the ticket away and so wakes the next. Whatever ends the wait otherwise takes
   the ticket away too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from leasectl.backends.contract import Journal, Patience, Progress, Turn, Withdrawn
from leasectl.engines.contract import Engine, PoolAdmin, TicketExpired, TicketGone, Waiter
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    Interrupted,
    LeaseError,
    NoLease,
    Unanswered,
)
from leasectl.model import Claimant, Lease, Process, Standing, Ticket
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Sleep
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted

RECOVER_AGAIN_SECONDS = 1.0
ASK_AGAIN_SECONDS = 1.0


class _View(NamedTuple):
    """What was seen from the ticket's place: the leases it got, or what to wait for.

    ``predecessor`` is None at the head of the queue, where ``processes`` and ``expiry`` count.
    """

    leases: tuple[Lease, ...] | None = None
    predecessor: Ticket | None = None
    processes: tuple[Process, ...] = ()
    expiry: float | None = None


class PoolTurn:
    """One acquisition.

    Args:
        engine: The store.
        pools: The same store's pools.
        clock: The engine's clock.
        claimant: Who asks, for what.
        journal: Keeps the record in step.
        patience: How long to wait.
    """

    def __init__(
        self,
        engine: Engine[Any],
        pools: PoolAdmin,
        clock: Clock,
        claimant: Claimant,
        journal: Journal,
        patience: Patience,
    ) -> None:
        self._engine = engine
        self._pools = pools
        self._clock = clock
        self._claimant = claimant
        self._type = claimant.request.type
        self._journal = journal
        self._patience = patience
        self._start = clock.elapsed()
        wait = patience.wait_seconds
        self._deadline = None if wait is None else self._start + wait
        self._next_report = self._start if patience.report else None
        self._ticket: Ticket | None = None
        self._outage: BackendUnreachable | None = None  # why the store couldn't be asked just now

    def take(self) -> Turn:
        """Get the leases; yields each sleep that it needs.

        Raises:
            NoLease: Not before the deadline.
            Withdrawn: Somebody took the ticket away.
            NotFound, InvalidRequest: The request can't be met, or can't any more.
            BackendUnreachable: The store didn't answer for longer than it keeps the ticket.
        """
        waiter = self._engine.waiter(self._claimant)
        try:
            view = self._enter(waiter)
            if view.leases is not None:
                return view.leases
            with self._leaving():
                return (yield from self._wait(view, waiter))
        finally:
            waiter.close()

    # 1. The ticket

    def _enter(self, waiter: Waiter) -> _View:
        """Get in the queue and look for the first time."""
        if self._engine.has_queue(self._type):
            waiter.open()  # it takes long, and now others needn't wait for it
        undone = self._engine.undoes  # then nothing of what fails here has happened
        with contextlib.nullcontext() if undone else self._leaving(), self._atomic():
            self._journal.enqueuing()
            self._ticket = self._engine.enqueue(self._claimant, waiter)
            view = self._look()
            if view.leases is None:
                waiter.open()
            return view

    # 2. and 3. The wait, and the claim

    def _wait(self, view: _View, waiter: Waiter) -> Turn:
        """Sleep and look, until there is something to have or no time left."""
        recovered = False
        while view.leases is None:
            self._check_deadline()
            self._report_when_due(waiter)
            ended = yield from self._sleep(view, waiter, recovered=recovered)
            recovered = ended and view.predecessor is None
            if recovered:
                self._patience.recover()
            with self._outlasting(waiter):
                with self._atomic():
                    view = self._look()
                self._outage = None
        return view.leases

    def _sleep(
        self, view: _View, waiter: Waiter, *, recovered: bool
    ) -> Generator[Sleep, set[int], bool]:
        """Sleep until something may have changed; returns whether a process has ended.

        Args:
            view: What was seen last.
            waiter: Knows what to listen for.
            recovered: It has just been put right what an ended process left, as far as possible.
        """
        now = self._clock.elapsed()
        fds, ended = waiter.listen(predecessor=view.predecessor, processes=view.processes)
        if ended and not recovered:
            return True
        # What couldn't be put right a moment ago is tried again, but not in a spin.
        again = now + RECOVER_AGAIN_SECONDS if ended else None
        look = self._clock.elapsed() + ASK_AGAIN_SECONDS if self._outage else view.expiry
        woken = yield Sleep(fds, earliest(self._deadline, self._next_report, look, again))
        return waiter.heard(woken) or ended

    def _look(self) -> _View:
        """Claim if it is this ticket's turn; else tell what there is to wait for."""
        assert self._ticket is not None
        before_me = self._engine.predecessor(self._ticket)
        if before_me is not None:
            return _View(predecessor=before_me)
        leases = self._engine.claim(self._ticket)
        if leases is not None:
            self._record(leases)
            return _View(leases=leases)
        expiry = self._engine.next_expiry(self._type)
        return _View(processes=tuple(self._patience.watched()), expiry=expiry)

    def _record(self, leases: tuple[Lease, ...]) -> None:
        """Have the journal know of the grant, or give it back."""
        try:
            self._journal.granted(leases)
        except BaseException:
            if not self._engine.undoes:
                try:
                    self._engine.free(self._claimant.claim_key, [lease.name for lease in leases])
                except (LeaseError, Interrupted):
                    self._journal.to_undo()
            raise

    @contextlib.contextmanager
    def _atomic(self) -> Iterator[None]:
        """Steps that belong together, none of them waited for much beyond the deadline."""
        with self._engine.limited(self._deadline), self._engine.atomic():
            yield

    @contextlib.contextmanager
    def _outlasting(self, waiter: Waiter) -> Iterator[None]:
        """Bear it that the store doesn't answer, for as long as it may keep the ticket."""
        try:
            yield
        except BackendUnreachable as reason:
            final = isinstance(reason, TicketExpired) or not waiter.has_place
            if final or self._is_over(self._clock.elapsed()):
                raise
            if self._outage is None:
                self._patience.warn(f"waiting on, as the place in the queue should last: {reason}")
            self._outage = reason

    # 4. The end without leases

    @contextlib.contextmanager
    def _leaving(self) -> Iterator[None]:
        """Get out of the queue for whatever ends the steps inside."""
        try:
            yield
        except BaseException as reason:
            with self._atomic():
                self._leave(reason)
            if isinstance(reason, TicketGone):
                raise self._withdrawn() from None
            raise

    def _leave(self, reason: BaseException) -> None:
        """Take the ticket away; where the store doesn't answer somebody else has to, later."""
        try:
            if isinstance(reason, BackendUnreachable) and not reason.asked:
                pass
            elif _is_outage(reason):
                self._journal.to_undo()  # it was waited for long enough
            elif self._ticket is None:
                self._engine.withdraw(self._claimant.claim_key)  # it may be there, unheard of
            else:
                self._engine.dequeue(self._ticket)
        except (LeaseError, Interrupted):
            self._journal.to_undo()
        self._journal.gave_up()

    def _withdrawn(self) -> Withdrawn:
        self._standing()  # says so when the whole pool is gone
        return Withdrawn(f"{self._type}: the request was released while it waited")

    def _is_over(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    def _check_deadline(self) -> None:
        now = self._clock.elapsed()
        if self._is_over(now):
            raise self._outage or self._no_lease(now - self._start)

    def _no_lease(self, waited: float) -> NoLease:
        now = self._standing()
        after = f" within {format_duration(waited)}" if waited >= 1 else ""
        return NoLease(
            f'no lease of "{self._type}"{after}: {now.held} of {now.capacity} held, '
            f"{counted(now.others, 'other')} waiting; see who with: leasectl status -t {self._type}"
        )

    # What is told on the way

    def _report_when_due(self, waiter: Waiter) -> None:
        now = self._clock.elapsed()
        if self._patience.report is None or self._next_report is None or now < self._next_report:
            return
        self._next_report = now + self._patience.report_seconds
        if self._outage is None:
            with self._outlasting(waiter):
                self._patience.report(self._progress())

    def _progress(self) -> Progress:
        now = self._standing()
        held_seconds = self._clock.wall() - now.longest_since if now.longest_holder else 0.0
        return Progress(
            position=now.position,
            held=now.held,
            capacity=now.capacity,
            longest_holder=now.longest_holder,
            longest_held_seconds=held_seconds,
            waited_seconds=self._clock.elapsed() - self._start,
        )

    def _standing(self) -> Standing:
        assert self._ticket is not None
        with self._engine.limited(self._deadline):
            return self._pools.standing(self._type, self._ticket.number)


def _is_outage(reason: BaseException) -> bool:
    """Tell whether it would take long to ask the store for more."""
    if isinstance(reason, AccessRefused):
        return False
    return isinstance(reason, (BackendUnreachable, Unanswered))
