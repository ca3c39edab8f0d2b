"""With the lease: reuse a result, share a failure, or run the command.

Each step is one change in the store, guarded by the lease's fence. So if two processes think that
they hold the lease, only the real holder changes anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from leasectl.backends.kinds import claim_key_of
from leasectl.engines.facts import QueueEntry
from leasectl.engines.values import Guard, ValueChange
from leasectl.errors import (
    BackendUnreachable,
    Interrupted,
    LeaseError,
    LeaseLost,
    NoRoom,
    NotAllowed,
    NotFound,
)
from leasectl.leases.on_demand import PoolOnDemand
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.once.command import Came, WorkCommand
from leasectl.once.results import (
    Asked,
    Failure,
    Kept,
    Outcome,
    Results,
    Round,
    Verdict,
    begun,
    died,
    failed,
    of_those_who_wait,
    of_ticket,
    stopped,
    terms_of,
    to_drop_content,
    to_find_none,
    to_forget,
    to_keep_content,
    to_keep_round,
    to_note_failure,
    to_point_at,
    verdict,
)
from leasectl.state.event import Event, EventKind
from leasectl.text.naming import is_follower
from leasectl.text.wording import followed_by

_ASK_AGAIN_SECONDS = 0.3
_STOP_SECONDS = 5.0
_LONGEST_REASON = 300


class UnderLease:
    """The holder of a work's lease.

    Args:
        service: Where it comes from.
        asked: The work, and how to do it.
        handle: By which it is held.
        results: Where its outcome is kept.
        pool: The work's own pool, which is removed when the lease is given back.
        over: The stored round from before we created the work's pool, which concerns no later
            waiter. None if others have created it.
        warn: Called with a line for people.

    Attributes:
        has_given_back: The lease was given back, in the step that stored the outcome.
        is_left: It is left to the keeper, since its server doesn't answer.
        is_tried_again: Our command has failed, and the next waiter runs it.
    """

    def __init__(
        self,
        service: Service,
        asked: Asked,
        handle: Handle,
        *,
        results: Results,
        pool: PoolOnDemand,
        over: Round | None,
        warn: Callable[[str], None],
    ) -> None:
        self._service = service
        self._asked = asked
        self._handle = handle
        self._results = results
        self._pool = pool
        self._over = over
        self._warn = warn
        (self._lease,) = handle.leases
        self.has_given_back = False
        self.is_left = False
        self.is_tried_again = False

    # ---- before the command

    def share_failure(self) -> Outcome | None:
        """Give the lease back to the next, if others' failures count for us too; else return None.

        Raises:
            LeaseLost: The lease is another's by now.
            LeaseError: Too many runners have died.
        """
        with self._service.atomic():
            first, last = self._tickets()
            ticket = self._lease.ticket
            before = self._results.round(self._asked.work)
            found = died(self._of_ours(before), last)
            attempts = terms_of(found, self._asked).attempts
            shared = verdict(found, ticket, attempts=attempts)
            if shared is None:
                return None
            left = of_those_who_wait(found, first)
            try:
                self._change([to_keep_round(self._asked.work, left)], frees=True)
            except BackendUnreachable as error:  # the lease may have been given back
                self._leave_to_keeper(error)
        return self._outcome(shared)

    def pass_on(self) -> bool:
        """Give the lease of a follower back without running the command.

        Returns:
            Whether a waiter is left that may run it.

        Raises:
            LeaseLost: The lease is another's by now.
        """
        with self._service.atomic():
            queue = self._queue()
            first = min((each.ticket for each in queue), default=None)
            left = of_those_who_wait(self._results.round(self._asked.work), first)
            self._change([to_keep_round(self._asked.work, left)], frees=True)
        return not all(each.suspended for each in queue)

    def begin(self, bad: Kept | None) -> Round | None:
        """Record that we run, and forget a result that can't be used.

        Args:
            bad: That result, as it was read under the lease; None if there was none.

        Returns:
            The round with its retry rules; None if there is another result by now, of an earlier
                holder
            of the lease that was slow.

        Raises:
            LeaseLost: The lease is another's by now.
        """
        work = self._asked.work
        with self._service.atomic():
            _, last = self._tickets()
            before = self._results.round(work)
            found = begun(self._of_ours(before), self._lease.fence, last, self._asked.terms)
            changes = [to_keep_round(work, found)]
            changes += [to_find_none(work)] if bad is None else to_forget(bad)
            why = []
            if before.running is not None:
                changes.append(to_drop_content(work, before.running))
                why.append("the last caller that ran it died")
            if bad is not None:
                why.append("the kept result can't be used")
            try:
                self._change(changes, event=self._event("work begun", reason=", ".join(why)))
            except LeaseLost:
                kept = self._results.kept(work)
                if kept is None or (bad is not None and kept.version == bad.version):
                    raise
                return None
        if found.failures:
            self._tell_failure(found.failures[-1], len(found.failures))
        return found

    def _tell_failure(self, failure: Failure, times: int) -> None:
        """Report the earlier failures to the next runner."""
        title = self._asked.work.title
        failed = f"run {times} failed with exit code {failure.status}"
        self._warn(f"work {title}: {failed}; this command starts run {times + 1}")
        for each in failure.lines.splitlines():
            self._warn(f"| {each}")

    # ---- after it

    def record(
        self, found: Round, came: Came, command: WorkCommand | None, *, is_to_end: bool = False
    ) -> Outcome:
        """Record the outcome of the command, and give the lease back in the same step.

        Args:
            found: As `begin` returned it.
            came: The outcome.
            command: Its guard still lives; None if this process did the work.
            is_to_end: A signal has asked this process to end; then a failed command doesn't count
                as a failure.

        Raises:
            LeaseLost: The lease is another's by now, and nothing was recorded.
        """
        if came.content is not None:
            try:
                return self._record_result(found, came, came.content)
            except NoRoom as error:
                error.args = (f"the result of work {self._asked.work.title} isn't kept: {error}",)
                came = came.without_result(error)
        if command is not None:
            command.kill_rest()
        if is_to_end:
            self.stop(found)
        else:
            self._record_failure(found, came)
        return Outcome(ending=came.ending, error=came.error)

    def stop(self, found: Round) -> None:
        """Give up, and leave the work to the next; the keeper does what can't be done now."""
        try:
            limit = self._service.state.lock_limit.within(_STOP_SECONDS)
            with limit, self._service.atomic():
                first, last = self._tickets()
                left = of_those_who_wait(stopped(found, last), first)
                self._change([to_keep_round(self._asked.work, left)], frees=True)
        except BackendUnreachable as error:
            self._leave_to_keeper(error)
        except (LeaseError, Interrupted):
            pass

    def _record_result(self, found: Round, came: Came, content: bytes) -> Outcome:
        work = self._asked.work
        kept = Kept(
            work,
            self._lease.fence,
            self._handle.holder_identity,
            came.seconds,
            len(content),
            self._service.clock.wall(),
            terms_of(found, self._asked).keep_seconds,
        )
        self._insist(lambda: self._change([to_keep_content(kept, content)]))

        def point_at_it() -> None:
            before, old = self._results.kept(work), []
            if before is not None and before.fence != kept.fence:
                old.append(to_drop_content(work, before.fence))
            changes = [to_point_at(kept), to_keep_round(work, None), *old]
            size = f"{len(content)} bytes"
            event = self._event("work done", reason=size, seconds=came.seconds)
            self._change(changes, frees=True, event=event)

        try:
            self._insist(point_at_it)
        except LeaseLost:
            # An earlier try may have stored it, and its answer was lost.
            is_ours = self._results.kept(work)
            if is_ours is None or is_ours.fence != kept.fence:
                raise
            self._note_given_back()
        return Outcome(content, kept, is_ours=True)

    def _record_failure(self, found: Round, came: Came) -> None:
        def write() -> None:
            with self._service.atomic():
                first, last = self._tickets()
                terms = terms_of(found, self._asked)
                is_final = came.is_final or terms.shares
                after = failed(found, came.status, last, is_final=is_final, lines=came.lines)
                is_shared = verdict(after, last, attempts=terms.attempts) is not None
                self.is_tried_again = first is not None and not is_shared
                left = of_those_who_wait(after, first)
                why = came.ending.describe() if came.ending is not None else str(came.error)
                event = self._event("work failed", reason=why, seconds=came.seconds)
                changes = [to_keep_round(self._asked.work, left)]
                if self._service.backend_of(self._handle).remote:
                    changes.append(to_note_failure(self._asked.work, self._lease.fence))
                self._change(changes, frees=True, event=event)

        try:
            self._insist(write)
        except LeaseLost:
            # An earlier try may have stored it, and its answer was lost.
            if not self._results.has_failed(self._asked.work, self._lease.fence):
                raise
            self._note_given_back()

    # ---- steps

    def _of_ours(self, found: Round) -> Round:
        """Return the part of a round that concerns us."""
        return Round() if found == self._over else of_ticket(found, self._lease.ticket)

    def _tickets(self) -> tuple[int | None, int]:
        """Return the first ticket in the queue, None without any; the last, or our own."""
        numbers = [each.ticket for each in self._queue()]
        return min(numbers, default=None), max(numbers, default=self._lease.ticket)

    def _queue(self) -> list[QueueEntry]:
        """Return the waiters that may run the command: all but followers."""
        try:
            (pool,) = self._service.pools.pools(self._asked.work.pool_type)
        except NotFound:  # only if the lease is lost
            raise self._lost() from None
        return [each for each in pool.queue if not is_follower(each.labels)]

    def _event(self, kind: EventKind, *, reason: str, seconds: float | None = None) -> Event:
        work, handle = self._asked.work, self._handle
        return Event(
            0,
            self._service.clock.wall(),
            kind,
            work.pool_type,
            work.names,
            (self._lease.fence,),
            handle=handle.id,
            holder_identity=handle.holder_identity,
            hold_seconds=seconds,
            reason=reason[:_LONGEST_REASON],
        )

    def _change(
        self, changes: Sequence[ValueChange], *, frees: bool = False, event: Event | None = None
    ) -> None:
        claim_key = claim_key_of(self._handle)
        guard = Guard(claim_key, self._lease.name, self._lease.fence, frees=frees)
        with self._service.atomic():
            if not self._service.values.change(changes, guard=guard, event=event):
                raise self._lost()
            if frees:
                self._pool.leave()
                self._note_given_back()  # last: before that, the keeper would give it back

    def _leave_to_keeper(self, error: BackendUnreachable) -> None:
        self.is_left = True  # another request would take as long again
        self._pool.leave_to_keeper()
        self._warn(followed_by(error, "the keeper gives the lease back"))

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"the lease of work {self._asked.work.title} was lost; nothing was recorded, and the "
            "next holder runs the work"
        )

    def _note_given_back(self) -> None:
        with self._service.state.transaction():
            self._service.handles.forget(self._handle.id, self._handle.acquisition)
        self.has_given_back = True

    def _insist(self, step: Callable[[], None]) -> None:
        """Take a step of the outcome; repeat it for a time if its server doesn't answer."""
        ttl, clock = self._handle.request.ttl_seconds, self._service.clock
        give_up_at = clock.elapsed() + (ttl or 0.0)
        while True:
            try:
                if ttl is not None:
                    sent_at = clock.elapsed()
                    renew(self._service, whole(self._handle))  # so that the step has time
                    give_up_at = sent_at + ttl
            except BackendUnreachable:
                pass
            except (LeaseLost, NotAllowed):
                raise self._lost() from None
            try:
                return step()
            except BackendUnreachable as error:
                if clock.elapsed() >= give_up_at:
                    raise
                self._warn(followed_by(error, "trying again"))
                time.sleep(_ASK_AGAIN_SECONDS)

    def _outcome(self, shared: Verdict) -> Outcome:
        if shared.status is None:
            raise LeaseError(
                f"work {self._asked.work.title}: {shared.times} callers in a row died while they "
                "ran it; find out why, and run it again"
            )
        return Outcome(status=shared.status, times=shared.times, lines=shared.lines)
