"""The one pool algorithm, over every engine: first come, first served; all or nothing.

1. Put a ticket in the queue.
2. Wait until no living ticket is before mine, watching the nearest one only.
3. At the head, claim as soon as enough resources are free.
4. The claim takes the ticket away and so wakes the next. Whatever ends the wait otherwise takes
   the ticket away too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
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
from leasectl.system.poll import Sleep, sleep_through
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted

RECOVER_AGAIN_SECONDS = 1.0
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

    def withdraw(self, claim_key: str) -> None:
        self._engine.withdraw(claim_key)

    def release(self, claim_key: str, names: Sequence[str]) -> tuple[str, ...]:
        if names or not self.remote:
            return self._engine.free(claim_key, names)
        self._engine.withdraw(claim_key)
        return self._engine.free(claim_key)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        return self._engine.renew(claim_key)

    def acquire(
        self, claimant: Claimant, journal: Journal, patience: Patience
    ) -> tuple[Lease, ...]:
        steps = self.turn(claimant, journal, patience)
        return sleep_through(steps, interrupts=patience.interrupts, now=self._clock.elapsed)

    def turn(self, claimant: Claimant, journal: Journal, patience: Patience) -> Turn:
        """What `acquire` does, as a generator of the naps in between."""
        return PoolTurn(self._engine, self.pools, self._clock, claimant, journal, patience).take()


class PoolTurn:
    """One acquisition, from its ticket to its leases or its end.

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
        self._ticket: Ticket | None = None
        self._silence: BackendUnreachable | None = None  # why the store couldn't be asked just now

    def take(self) -> Turn:
        """Get the leases; yields the naps."""
        waiter = self._engine.waiter(self._claimant)
        try:
            if self._engine.has_queue(self._type):
                waiter.open()  # it takes long, and now others needn't wait for it
            with self._limited(), self._engine.atomic():
                view = self._enter(waiter)
                if view.leases is not None:
                    return view.leases
                waiter.open()
            try:
                return (yield from self._wait(view, waiter))
            except BaseException as reason:
                with self._limited(), self._engine.atomic():
                    self._leave(reason)
                if isinstance(reason, TicketGone):
                    raise self._withdrawn() from None
                raise
        finally:
            waiter.close()

    def _enter(self, waiter: Waiter) -> _View:
        """Get in the queue and look for the first time."""
        self._journal.enqueuing()
        try:
            self._ticket = self._engine.enqueue(self._claimant, waiter)
            return self._look()
        except BaseException as reason:
            if not self._engine.undoes:
                self._leave(reason)
            if isinstance(reason, TicketGone):
                raise self._withdrawn() from None
            raise

    def _leave(self, reason: BaseException) -> None:
        """Get out of the queue; from a store that doesn't answer somebody else has to, later."""
        try:
            if isinstance(reason, BackendUnreachable) and not reason.asked:
                pass
            elif _is_silence(reason):
                self._journal.to_undo()  # it was waited for long enough
            elif self._ticket is None:
                self._engine.withdraw(
                    self._claimant.claim_key
                )  # it may be there, and nobody told us
            else:
                self._engine.dequeue(self._ticket)
        except (LeaseError, Interrupted):
            self._journal.to_undo()
        self._journal.gave_up()

    def _withdrawn(self) -> Withdrawn:
        self._standing()  # says so when the whole pool is gone
        return Withdrawn(f"{self._type}: the request was released while it waited")

    def _limited(self) -> AbstractContextManager[object]:
        return self._engine.limited(self._deadline)

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
        try:
            self._journal.granted(leases)
        except BaseException:
            if not self._engine.undoes:
                try:
                    self._engine.free(self._claimant.claim_key, [lease.name for lease in leases])
                except (LeaseError, Interrupted):
                    self._journal.to_undo()
            raise

    def _wait(self, view: _View, waiter: Waiter) -> Turn:
        next_report = self._clock.elapsed() if self._patience.report else None
        recovered = False
        while True:
            now = self._clock.elapsed()
            if self._is_over(now):
                raise self._silence or self._no_lease(now - self._start)
            if next_report is not None and now >= next_report:
                next_report = now + self._patience.report_seconds
                with self._outlasting(waiter):
                    self._report()
            fds, ended = waiter.listen(predecessor=view.predecessor, processes=view.processes)
            if not ended or recovered:
                # What couldn't be put right a moment ago is tried again, but not in a spin.
                again = now + RECOVER_AGAIN_SECONDS if ended else None
                ask = self._clock.elapsed() + ASK_AGAIN_SECONDS if self._silence else view.expiry
                woken = yield Sleep(fds, earliest(self._deadline, next_report, ask, again))
                ended = waiter.heard(woken) or ended
            recovered = ended and view.predecessor is None
            if recovered:
                self._patience.recover()
            with self._outlasting(waiter):
                with self._limited(), self._engine.atomic():
                    view = self._look()
                self._silence = None
            if view.leases is not None:
                return view.leases

    def _is_over(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    @contextlib.contextmanager
    def _outlasting(self, waiter: Waiter) -> Iterator[None]:
        """Take it that the store doesn't answer, for as long as it may keep the place."""
        try:
            yield
        except BackendUnreachable as reason:
            final = isinstance(reason, TicketExpired) or not waiter.has_place
            if final or self._is_over(self._clock.elapsed()):
                raise
            if self._silence is None:
                self._patience.warn(f"waiting on, as the place in the queue should last: {reason}")
            self._silence = reason

    def _report(self) -> None:
        if self._silence is None and self._patience.report is not None:
            self._patience.report(self._progress())

    def _standing(self) -> Standing:
        assert self._ticket is not None
        with self._limited():
            return self._pools.standing(self._type, self._ticket.number)

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

    def _no_lease(self, waited: float) -> NoLease:
        now = self._standing()
        after = f" within {format_duration(waited)}" if waited >= 1 else ""
        return NoLease(
            f'no lease of "{self._type}"{after}: {now.held} of {now.capacity} held, '
            f"{counted(now.others, 'other')} waiting; see who with: leasectl status -t {self._type}"
        )


def _is_silence(reason: BaseException) -> bool:
    """Tell whether it would take long to ask the store for more."""
    if isinstance(reason, AccessRefused):
        return False
    return isinstance(reason, (BackendUnreachable, Unanswered))
