"""One acquisition, from its ticket to its leases or its end.

1. Put a ticket in the queue.
2. Wait until it is mine to claim, watching the nearest of those only that it isn't for.
3. Then claim as soon as enough resources are free and the pool's pace allows a grant.
4. The claim takes the ticket away and so wakes the next. Whatever ends the wait otherwise takes
   the ticket away too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from leasectl.backends.contract import Journal, Patience, Progress, Turn, Withdrawn, why_given_up
from leasectl.backends.kinds import Backend, pools_of
from leasectl.engines.contract import Engine, Outlook, TicketExpired, TicketGone, Waiter
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    Interrupted,
    LeaseError,
    NoLease,
    Unanswered,
)
from leasectl.model import Claimant, Process
from leasectl.system.backoff import Backoff, Restarts
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Sleep
from leasectl.system.process import is_dead
from leasectl.text.durations import format_duration
from leasectl.text.naming import superseding_key, wants_whole_pool
from leasectl.text.wording import counted

if TYPE_CHECKING:
    from leasectl.engines.facts import Standing

Looked = TypeVar("Looked", Outlook, "Outlook | None")

RECOVER_AGAIN_SECONDS = 1.0
ASK_AGAIN_SECONDS = 1.0
# Most wait for less, and who waits for long isn't in a hurry to be the first who has done it.
WITNESS_AFTER_SECONDS = 1.0


class PoolTurn:
    """One acquisition.

    Args:
        backend: The store's.
        engine: The store.
        clock: The engine's clock.
        claimant: Who asks, for what.
        journal: Keeps the record in step.
        patience: How long to wait.
    """

    def __init__(
        self,
        backend: Backend,
        engine: Engine,
        clock: Clock,
        claimant: Claimant,
        journal: Journal,
        patience: Patience,
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._clock = clock
        self._claimant = claimant
        self._journal = journal
        self._patience = patience
        self._start = clock.elapsed()
        self._deadline = patience.until(self._start)
        self._next_report = self._start if patience.report else None
        self._watched: tuple[Process, ...] = ()  # whose end may free something
        self._outage: BackendUnreachable | None = None  # why the store couldn't be asked just now
        self._asked_at = self._start
        self._outage_since = self._start
        self._has_looked = False  # the store has answered
        self._standing: Standing | None = None  # as it was last reported
        self._witness: Process | None = None  # sees to it that those before it come
        self._witnesses = Restarts(Backoff(1.0, 30.0))
        self._look_for_witness_at = self._start + WITNESS_AFTER_SECONDS
        self._impossible: str | None = None  # why it can't be met as things are

    def take(self) -> Turn:
        """Get the leases, of which the journal is told; yields each sleep that it needs.

        Raises:
            NoLease: Not before the deadline.
            Withdrawn: Somebody took the ticket away.
            NotFound, InvalidRequest: The request can't be met, or the pool was deleted meanwhile.
            BackendUnreachable: The store didn't answer for longer than `Patience.server_seconds`;
                without limits, for longer than it keeps the ticket.
        """
        self._waiter = self._new_waiter()
        try:
            outlook = yield from self._enter()
            if outlook.leases is not None:
                self._withdraw_older(outlook)
            else:
                with self._leaving():
                    self._withdraw_older(outlook)
                    yield from self._wait(outlook)
        finally:
            self._waiter.close()

    def _new_waiter(self) -> Waiter:
        until = self._deadline
        if self._patience.connect_seconds is not None:
            until = earliest(until, self._start + self._patience.connect_seconds)
        if not self._claimant.request.other_types:
            return self._engine.waiter(self._claimant, until=until)
        if self._claimant.request.needs_all:
            from leasectl.backends.pool.together import TogetherWaiter

            return TogetherWaiter(self._engine, self._claimant, until=until, clock=self._clock)
        from leasectl.backends.pool.either import EitherWaiter

        return EitherWaiter(
            self._engine,
            self._claimant,
            until=until,
            warn=self._patience.warn,
        )

    # 1. The ticket

    def _enter(self) -> Generator[Sleep, set[int], Outlook]:
        """Get in the queue, and try to claim for the first time."""
        is_undone = self._engine.undoes  # then nothing of what fails here has happened
        with nullcontext() if is_undone else self._leaving():
            try:
                with self._engine.atomic():
                    self._journal.enqueuing()
                    self._waiter.enqueue()
                    return self._claim()
            except TicketExpired:
                if self._is_over(self._clock.elapsed()):
                    raise  # it never looked, so nobody can say that there is no lease
                self._warn_of_lost_place()
            except BackendUnreachable as reason:
                self._outlast(reason, has_place=False)
                yield self._until_asked_again()
            return (yield from self._anew(self._look))

    def _withdraw_older(self, outlook: Outlook) -> None:
        """Withdraw the older requests with the key of this one, if it has one."""
        request, leases = self._claimant.request, outlook.leases
        if not superseding_key(request.labels):
            return
        if not leases and self._deadline is not None and self._is_over(self._clock.elapsed()):
            return  # it ends at once, and another may be granted what is released next
        granted = {}
        if leases:
            types = request.types if request.needs_all else (outlook.pool_type or request.type,)
            granted = {each: leases[n * request.count].ticket for n, each in enumerate(types)}
        from leasectl.backends.pool.withdrawals import supersede

        try:
            supersede(self._backend, self._claimant, granted=granted)
        except LeaseError as error:
            self._patience.warn(f"older requests with the same key may still wait: {error}")

    # 2. and 3. The wait, and the claim

    def _wait(self, outlook: Outlook) -> Turn:
        """Sleep and try to claim, until there is enough or no time left."""
        recovered = False
        while outlook.leases is None:
            self._check_deadline()
            self._warn_of(outlook.impossible)
            self._report_when_due()
            self._see_to_witness(outlook)
            ended = yield from self._sleep(outlook, recovered=recovered)
            recovered = ended and outlook.is_head
            if recovered:
                self._patience.recover()
            outlook = yield from self._look_again(outlook)

    def _look_again(self, before: Outlook) -> Generator[Sleep, set[int], Outlook]:
        """Try to claim; as it was before if the store doesn't answer now."""
        try:
            return self._try_to_claim() or before
        except TicketExpired:
            self._check_deadline()
            self._warn_of_lost_place()
            return (yield from self._anew(self._try_to_claim)) or before

    def _try_to_claim(self) -> Outlook | None:
        self._asked_at = self._clock.elapsed()
        try:
            return self._look()
        except BackendUnreachable as reason:
            self._outlast(reason, has_place=self._waiter.has_place)
            return None

    def _look(self) -> Outlook:
        with self._engine.atomic():
            return self._claim()

    def _anew(self, look: Callable[[], Looked]) -> Generator[Sleep, set[int], Looked]:
        """Queue again and look from there: as often as it is stopped for so long meanwhile."""
        while True:
            self._check_deadline()
            self._asked_at = self._clock.elapsed()
            try:
                self._queue_again()
                return look()
            except TicketExpired:
                if self._waiter.has_place:  # the store has other reasons
                    raise
                self._check_deadline()
                self._warn_of_lost_place()
            except BackendUnreachable as reason:
                self._outlast(reason, has_place=False)
                yield self._until_asked_again()

    def _warn_of_lost_place(self) -> None:
        self._patience.warn(
            "the queue position was not renewed in time, because this process was "
            "stopped or its server didn't answer; the request continues at the end "
            "of the queue"
        )

    def _queue_again(self) -> None:
        """Put another ticket in place of one that the store took for a dead process's, or that it
        may not have heard of."""
        self._waiter.dequeue("its queue position wasn't renewed in time; it queues again")
        self._waiter.close()
        self._waiter = self._new_waiter()
        with self._engine.atomic():
            self._waiter.enqueue(again=self._has_looked)

    def _until_asked_again(self) -> Sleep:
        again = self._clock.elapsed() + ASK_AGAIN_SECONDS
        return Sleep(frozenset(), earliest(self._deadline, again))

    def _sleep(self, outlook: Outlook, *, recovered: bool) -> Generator[Sleep, set[int], bool]:
        """Sleep until something may have changed; returns whether a process has ended.

        Args:
            outlook: What came of the last try.
            recovered: It has just been put right what an ended process left, as far as possible.
        """
        witnesses = () if self._witness is None else (self._witness,)
        fds, ended = self._waiter.listen((*self._watched, *witnesses))
        if ended and not recovered:
            return True
        # What couldn't be put right a moment ago is tried again, but not in a spin.
        again = self._clock.elapsed() + RECOVER_AGAIN_SECONDS if ended else None
        if self._needs_witness(outlook):
            again = earliest(again, self._look_for_witness_at)
        look = earliest(outlook.look_again_at, outlook.next_grant_at)
        if self._outage:
            look = self._clock.elapsed() + ASK_AGAIN_SECONDS
        woken = yield Sleep(fds, earliest(self._deadline, self._next_report, look, again))
        return self._waiter.heard(woken) or ended

    def _needs_witness(self, outlook: Outlook) -> bool:
        wanted = outlook.is_behind and self._patience.see_to_witness is not None
        return wanted and self._witness is None

    def _see_to_witness(self, outlook: Outlook) -> None:
        """Behind other waiters, start the keeper, which checks that they come."""
        now = self._clock.elapsed()
        if self._witness is not None and is_dead(self._witness):
            self._witness = None
            # All who wait hear of it: not all are to look for another at the same time.
            pause = self._witnesses.pause(now) + WITNESS_AFTER_SECONDS - (now - self._start) % 1.0
            self._look_for_witness_at = now + pause
        if self._needs_witness(outlook) and now >= self._look_for_witness_at:
            assert self._patience.see_to_witness is not None
            self._witness = self._patience.see_to_witness()
            self._look_for_witness_at = now + WITNESS_AFTER_SECONDS
            if self._witness is not None:
                self._witnesses.started(now)

    def _claim(self) -> Outlook:
        """Claim, if it is this ticket's turn and there is enough, and have it recorded."""
        self._check_whole_pool()
        outlook = self._waiter.claim()
        if outlook.impossible is not None:  # since the check, and nothing else would tell
            self._check_whole_pool()
        self._outage, self._has_looked = None, True
        if outlook.leases is not None:
            self._journal.granted(outlook.leases, pool_type=outlook.pool_type)
        self._watched = tuple(self._patience.watched()) if outlook.is_head else ()
        return outlook

    def _check_whole_pool(self) -> None:
        """End a request for a whole pool that was counted before the pool changed.

        It would get less than the whole pool, or wait for resources that have gone.
        """
        request = self._claimant.request
        if not wants_whole_pool(request.labels):
            return
        from leasectl.engines.rules.possible import usable_in

        (pool,) = self._backend.pools.pools(request.type)
        count = len(usable_in(pool, request))
        if count != request.count:
            now = "is 1" if count == 1 else f"are {count}"
            raise NoLease(
                f'pool "{request.type}" changed while the request waited: --count all counted '
                f"{counted(request.count, 'resource')}, and now there {now}; try again"
            )

    def _outlast(self, reason: BackendUnreachable, *, has_place: bool) -> None:
        """Note that the store doesn't answer.

        Args:
            reason: What it failed with.
            has_place: The ticket may be in the queue.

        Raises:
            LeaseError: That is for too long.
        """
        now = self._clock.elapsed()
        if self._outage is None:
            self._outage_since = self._asked_at
        seconds = self._patience.server_seconds(math.inf if has_place else 0.0)
        is_final = isinstance(reason, TicketExpired) or (reason.lasting and not has_place)
        if is_final or now >= self._outage_since + seconds:
            raise reason
        if self._is_over(now):
            raise self._not_in_time(reason)
        if self._outage is None:
            from leasectl.backends.unanswered import trying_again

            lasts = "still waiting, most likely at the same queue position"
            self._patience.warn(f"{lasts}: {reason}" if has_place else trying_again(reason))
        self._outage = reason

    # 4. The end without leases

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Get out of the queue for whatever ends the steps inside."""
        try:
            yield
        except BaseException as reason:
            with self._engine.atomic():
                self._leave(reason)
            if isinstance(reason, TicketGone):
                from leasectl.backends.pool.withdrawals import take_reason

                self._waiter.standing()  # says so when the whole pool is gone
                wanted = pools_of(self._claimant.request)
                why = take_reason(self._backend.values, self._claimant)
                error = Withdrawn(f"{wanted}: the request was {why or 'released while it waited'}")
                error.is_on_purpose = bool(why)
                raise error from None
            raise

    def _leave(self, reason: BaseException) -> None:
        """Withdraw the request; if the store doesn't answer, the keeper does it later."""
        try:
            if isinstance(reason, BackendUnreachable) and not reason.asked:
                pass  # there is nothing
            elif _is_outage(reason) or (self._outage is not None and isinstance(reason, NoLease)):
                self._journal.to_undo()  # it was waited for long enough
            else:
                self._waiter.dequeue(why_given_up(reason))
        except (LeaseError, Interrupted):
            self._journal.to_undo()
        self._journal.gave_up()

    def _is_over(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    def _check_deadline(self) -> None:
        if not self._is_over(self._clock.elapsed()):
            return
        if self._outage is None:
            try:
                raise self._no_lease(self._waiter.standing())
            except BackendUnreachable as reason:
                self._outage = reason
        raise self._not_in_time(self._outage)

    def _not_in_time(self, outage: BackendUnreachable) -> LeaseError:
        """Return the error for a deadline that passed while the store didn't answer."""
        if not self._has_looked:
            return outage  # it may be the wrong address
        self._outage = outage
        known = self._standing
        before = "" if known is None else f"; before that, {known.held} of {known.capacity} held"
        return NoLease(f"{self._no_lease_in_time()}: {outage}{before}")

    def _no_lease_in_time(self) -> str:
        waited = self._clock.elapsed() - self._start
        after = f" within {format_duration(waited)}" if waited >= 1 else ""
        wanted = pools_of(self._claimant.request, quote='"')
        return f"no lease of {wanted}{after}"

    def _no_lease(self, now: Standing) -> NoLease:
        types = self._claimant.request.types
        only = f" -t {types[0]}" if len(types) == 1 else ""
        left = self._until_next_grant(now)
        when = "" if left is None else f"; next grant in {format_duration(-(-left // 1))}"
        closed = self._why_closed(now)
        why = f" ({closed})" if closed else ""
        if not closed and left is None and now.position == 1 and now.held < now.capacity:
            from leasectl.backends.pool.closed import needs_of

            needs = needs_of(self._claimant.request)
            why = f", {needs}" if needs else ""
        # Whoever waits for several has a ticket in each queue.
        others = "other" if len(types) == 1 else "other request"
        waiting = counted(now.others, others) if now.others else "nobody else"
        return NoLease(
            f"{self._no_lease_in_time()}: {now.held} of {now.capacity} held{why}, {waiting} "
            f"waiting{when}; see the holders with: leasectl status{only}"
        )

    def _why_closed(self, now: Standing) -> str:
        """Why what is free can't be had; asked for by who is first alone: it reads whole pools."""
        is_first = now.position == 1 and now.held < now.capacity and not now.next_grant_at
        if not is_first:
            return ""
        from leasectl.backends.pool.closed import why_closed

        with self._backend.limited(self._clock.elapsed()):
            return why_closed(self._backend.pools, self._claimant.request.types)

    def _until_next_grant(self, now: Standing) -> float | None:
        """How long the pool's pace keeps everybody waiting, in seconds; None for not at all."""
        left = None if now.next_grant_at is None else now.next_grant_at - self._clock.elapsed()
        return left if left is not None and left > 0 else None

    # What is told on the way

    def _warn_of(self, impossible: str | None) -> None:
        """Tell when it can't be met any more as things are, and when it can again: once each."""
        if impossible == self._impossible:
            return
        if impossible is None:
            self._patience.warn("the request can be met again; it keeps its queue position")
        else:
            self._patience.warn(f"{impossible}; the request waits until the pool changes")
        self._impossible = impossible

    def _report_when_due(self) -> None:
        report, due = self._patience.report, self._next_report
        if report is None or due is None or self._clock.elapsed() < due:
            return
        self._next_report = self._clock.elapsed() + self._patience.report_seconds
        if self._outage is None:
            try:
                self._standing = self._waiter.standing()
                report(self._progress(self._standing))
            except BackendUnreachable as reason:
                self._outlast(reason, has_place=self._waiter.has_place)

    def _progress(self, now: Standing) -> Progress:
        # By the clock of the holder, which may be another machine's.
        since = now.longest_since if now.longest_holder else self._clock.wall()
        return Progress(
            position=now.position,
            held=now.held,
            capacity=now.capacity,
            longest_holder=now.longest_holder,
            longest_held_seconds=max(0.0, self._clock.wall() - since),
            waited_seconds=self._clock.elapsed() - self._start,
            next_grant_in_seconds=self._until_next_grant(now),
            pace_seconds=now.pace_seconds,
            closed=self._why_closed(now),
        )


def _is_outage(reason: BaseException) -> bool:
    """Tell whether it would take long to ask the store for more."""
    if isinstance(reason, AccessRefused):
        return False
    return isinstance(reason, (BackendUnreachable, Unanswered))
