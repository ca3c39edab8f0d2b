"""Each step of a ticket, until it is a claim.

Order: the place of a ticket is the version of the store at which it was written. Versions grow with
each write, so a later ticket has a larger place. A waiter looks at its pool as it was after its own
ticket was written. So it sees all tickets with a smaller place that are still there. Later, that
set only shrinks. A ticket of a higher priority may come before it all the same; the view that the
claim is made from decides that. So a view may be late, and still nobody claims before a live waiter
who came earlier and could use the resource.

*The fast road*: where a list shows no ticket and enough free resources, the waiter claims them
without a ticket. Its place is the version of that list, so every later ticket comes after it. Two
processes may try to claim the same resources. Each claim is guarded by the versions of its
resources, so one of them is refused. Where the store unites changes (`Objects.unites`), the claim
is also refused if a ticket is there by then. Who is refused queues with a ticket, and doesn't try
this road again. A request that needs resources of several pools never takes it. Where only parked
tickets wait, the road is closed as well: whoever queues behind them passes them with its ticket.

*Parked tickets* (`TicketObject.is_parked`) are passed by all whose views show them so. One may
count again before such a claim is written: that is as if it had been put then, with a higher
priority. Who looks later doesn't pass it.

*A stopped process* checks by its own clock, before it claims, whether its ticket has expired. If it
is stopped between that check and its write, the write is still guarded by the version of the
resource: it succeeds only if nobody has had the resource since. Where the store unites changes, the
ticket has to be there, too. At worst a waiter that was next keeps its turn.

A waiter that is killed before its ticket is written leaves nothing. After that it leaves a ticket.
Where tickets end by themselves (`Objects.ends`), this one does after its ttl. Elsewhere the waiters
behind it remove all tickets that weren't renewed for their ttl. The same happens to a ticket that
the store writes after its sender was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import cast

from leasectl.engines import refusals
from leasectl.engines.cluster.claims import Part
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.expiry import expire_membership, remove_dead
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    PoolObject,
    TicketObject,
)
from leasectl.engines.cluster.observed import Looked
from leasectl.engines.cluster.ticket import LOOK_AGAIN_SECONDS, OwnTicket
from leasectl.engines.cluster.turns import (
    count_free,
    is_waited_in,
    members_of,
    nearest_first,
    seconds_left,
    standing_of,
    to_follow,
    turn_of,
)
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.cluster.watches import Verdict, verdict_of
from leasectl.engines.contract import Outlook, PoolWaiter, TicketGone
from leasectl.engines.facts import Standing
from leasectl.engines.rules.possible import unmet, want_of
from leasectl.model import Lease, Process
from leasectl.system.process import this_process
from leasectl.system.process_watch import ProcessWatch
from leasectl.system.wakeup import Wakeup

# What is heard within that time isn't asked for.
_HEAR_SECONDS = 0.05
# More than one, as the nearest may be stopped; all would have a crowd wake at one end.
_MOST_FOLLOWED = 3
# Of Linux; anybody may have edited a ticket.
_HIGHEST_PID = 2**22


class ClusterWaiter:
    """One waiter, as `PoolWaiter`.

    Args:
        ticket: Its own.
        context: Of the place of the pool.
        until: How long its steps may take, on the elapsed clock; None for as long as they take.

    Attributes:
        ticket: As given.
        verdict: How it stood when it looked last, or was woken.
        found: What it could claim when it looked last; None for nothing.
    """

    def __init__(self, ticket: OwnTicket, context: Context, *, until: float | None) -> None:
        self.ticket = ticket
        self.verdict: Verdict | None = None
        self.found: Part | None = None
        self._context = context
        self._objects = context.objects
        self._claims = context.claims
        self._observed = context.observed
        self._session = context.session
        self._until = until
        self._clock = context.clock
        self._ends = ProcessEnds(context)
        self._wakeup: Wakeup | None = None
        self._view: PoolView | None = None  # what it has seen last
        self._put_in: PoolView | None = None  # as it was when its ticket was put
        self._is_fast = False  # and that it may claim by that, without a ticket
        self._far_behind: TicketObject | None = None  # if so, a ticket before it, as it follows

    @property
    def has_place(self) -> bool:
        return not self.ticket.is_overdue

    def check(self) -> None:
        with self._objects.limited(self._until):
            self._check(self.ticket.first_look())

    def enqueue(self, *, again: bool = False, beside: PoolWaiter | None = None) -> None:
        if beside is not None:
            first = cast("ClusterWaiter", beside).ticket.object
            assert first is not None, "it has its ticket"
            self.ticket.order = first.place
        with self._objects.limited(self._until):
            view = None if again else self._queue_seen()
            if view is None:
                view = self.ticket.first_look()
            if again:
                self._check_there(view)
            else:
                self._check(view)
            may_be_fast = not (again or self.ticket.request.needs_all)
            self._view, self._is_fast = view, may_be_fast and self._has_all(view)
            if not self._is_fast:
                self._put()

    def claim(self) -> Outlook:
        with self._objects.limited(self._until):
            return self._claim()

    def look(self) -> Outlook:
        with self._objects.limited(self._until):
            return self._at_last(self._find, self._put_in_or_look())

    def park(self, is_parked: bool) -> None:
        with self._objects.limited(self._until):
            self.ticket.park(is_parked)

    def claim_with(self, others: Sequence[ClusterWaiter]) -> tuple[Lease, ...] | None:
        """Implements `Engine.claim_all`, for this waiter and the others of its request."""
        with self._objects.limited(self._until):
            return self._claim_found([self, *others])

    def standing(self) -> Standing:
        with self._objects.limited(self._until):
            view = self._look()
            self._check_there(view)
            assert view.pool is not None
            now, over = self._clock.elapsed(), self._observed.look(view).over
            seconds = seconds_left(view.pool, self._observed, now)
            next_at = now + seconds if seconds else None
            return standing_of(self.ticket.as_seen(view), view, over, next_grant_at=next_at)

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        self.ticket.has_paid = False  # who sleeps now may do so for longer than a pace
        # Nothing is missed before: a watch starts at the version of the look before it.
        if self._wakeup is None:
            self._wakeup = Wakeup()
        if self._view is not None:
            self._session.listen(self, self._view, before=self._far_behind)
        fds, any_ended = self._ends.listen(processes)
        return frozenset((self._wakeup.fd, *fds)), any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._wakeup is not None and self._wakeup.fd in woken:
            self._wakeup.clear()
        return self._ends.heard(woken)

    def wake(self) -> None:
        """End its sleep; from any thread."""
        if self._wakeup is not None:
            self._wakeup.set()

    def dequeue(self, why: str = "") -> None:
        with self._objects.limited(self._until):
            own, self._is_fast = self.ticket, False
            if own.is_tried:
                self._objects.remove(own.as_put(), own.told_of_end(why))
            if own.claim_sent_at:
                self._claims.give_back(own)

    def close(self) -> None:
        self._ends.close()
        self._session.leave(self)
        if self._wakeup is not None:
            self._wakeup.close()

    # Looking

    def _check(self, view: PoolView) -> None:
        """Refuse what this pool could never meet, as `possible` has it."""
        self._check_there(view)
        why = unmet(self.ticket.request, members_of(view))
        if why is not None:
            raise why.refusal()

    def _check_there(self, view: PoolView) -> None:
        if not view.is_there:
            raise self._context.no_pool(view.pool_type)

    def _has_all(self, view: PoolView) -> bool:
        """Return whether the queue is empty and there is enough."""
        if view.has_more_tickets or is_waited_in(view):
            return False
        over, request = self._observed.look(view).over, self.ticket.request
        return count_free(view, want_of(request), over) >= request.count

    def _look(self) -> PoolView:
        """The pool as a watch keeps it up to date, from its own ticket on; else as it is.

        It shows at least what its waiter was woken by.
        """
        if self.ticket.refusal is not None:  # a watch goes on for who may do nothing else any more
            self.ticket.unwatched = None
            raise self.ticket.refusal.with_traceback(None)
        pool_watch = self._session.pool_watch(self.ticket.request.type)
        own, view = self.ticket.object, None
        if pool_watch is not None and not self.ticket.is_overdue:
            since = max(self.ticket.heard, 0 if own is None else own.place)
            view = pool_watch.view_since(since, _HEAR_SECONDS)
        return view or self._list()

    def _list(self) -> PoolView:
        """The pool as it is; refuses to wait where that may be asked and a watch may not."""
        unwatched, self.ticket.unwatched = self.ticket.unwatched, None
        view = self._context.pool(self.ticket.request.type)
        if unwatched is not None:
            raise unwatched
        return view

    def _queue_seen(self) -> PoolView | None:
        """Return the pool as a watch keeps it up to date, if it has waiters for sure.

        A new ticket needs no list then: it can't go on at once.
        """
        pool_watch = self._session.pool_watch(self.ticket.request.type)
        view = None if pool_watch is None else pool_watch.view()
        if view is None or not view.is_there or not is_waited_in(view):
            return None
        return view if unmet(self.ticket.request, members_of(view)) is None else None

    # Putting the ticket

    def _put(self) -> None:
        own = self.ticket
        assert self._view is not None
        own.note_seen(self._view)
        told = own.told_of_queueing()
        written = self._objects.write(Change(None, own.new_object(), told))
        if not written.is_done:
            raise own.expired()  # it was made, and taken away, before anybody said so
        own.note(written.object)
        own.queued_at = None
        if written.pool is not None:
            self._put_in = PoolView(own.request.type).fill(written.pool.items, written.pool.version)

    # Claiming

    def _claim(self) -> Outlook:
        own = self.ticket
        if own.unsure:
            leases = self._claim_found([self])
            if leases is not None:
                return Outlook(leases)
        if self._is_fast:
            assert self._view is not None
            self._is_fast, view = False, self._view
            outlook = self._claim_by(view)
            if outlook is not None and outlook.leases is not None:
                return outlook
            self._put()
        return self._at_last(self._claim_by, self._put_in_or_look())

    def _put_in_or_look(self) -> PoolView:
        put_in, self._put_in = self._put_in, None
        return put_in or self._look()

    def _at_last(self, step: Callable[[PoolView], Outlook | None], view: PoolView) -> Outlook:
        """Take a step by what was seen, or by what is there when that wasn't so any more."""
        for _ in range(MOST_TRIES):
            outlook = step(view)
            if outlook is not None:
                return outlook
            view = self._context.pool(self.ticket.request.type)
        # Its caller has a deadline, and may be interrupted.
        return Outlook(look_again_at=self._clock.elapsed() + LOOK_AGAIN_SECONDS)

    def _claim_by(self, view: PoolView) -> Outlook | None:
        """Claim what is seen to be free, if it is its turn; None if another was faster."""
        outlook = self._find(view)
        if outlook is None or not outlook.is_ready:
            return outlook
        leases = self._claim_found([self])
        return None if leases is None else Outlook(leases)

    def _claim_found(self, waiters: Sequence[ClusterWaiter]) -> tuple[Lease, ...] | None:
        owns, found = [each.ticket for each in waiters], [each.found for each in waiters]
        for each in waiters:  # before it claims again, it looks again
            each.found = None
        if any(each.unsure for each in owns):
            return self._claims.take_unsure(owns)
        parts = [each for each in found if each is not None]
        return self._claims.take(parts) if len(parts) == len(waiters) else None

    def _find(self, view: PoolView) -> Outlook | None:
        """Find what it may claim, if it is its turn; None if what was seen isn't so any more."""
        own, self._view, self.found = self.ticket, view, None
        if own.may_be_called_off(view):
            return Outlook(look_again_at=self._clock.elapsed() + LOOK_AGAIN_SECONDS)
        self._check_still_there(view)
        self._ends.see(own.as_seen(view), view)
        looked = self._observed.look(view)
        if not self._reap(view, looked):
            return None
        assert view.pool is not None
        over, ticket, now = looked.over, own.as_seen(view), self._clock.elapsed()
        turn = turn_of(ticket, view, over)
        self.verdict = verdict_of(own, view, over, turn)
        self._far_behind = None
        if not turn.is_met:
            impossible = str(unmet(own.request, members_of(view)))
            return self._until_more(Outlook(impossible=impossible), view.pool)
        if turn.before is not None:
            places, behind = self._objects.few_next, self._objects.few_before
            self._far_behind = to_follow(ticket, view, over, places=places, behind=behind)
            self._observed.save()
            return Outlook(is_behind=True)
        outlook = Outlook(is_head=True, is_behind=bool(turn.others) and own.request.name is None)
        if len(turn.free) < own.request.count:
            return self._until_more(outlook, view.pool)
        left = 0.0 if own.has_paid else seconds_left(view.pool, self._observed, now)
        if left:
            self._observed.save()
            return outlook._replace(next_grant_at=now + left)
        self.found = Part(own, view, turn.free[: own.request.count])
        return outlook._replace(is_ready=True)

    def _until_more(self, outlook: Outlook, pool: PoolObject) -> Outlook | None:
        """Look for names that are to move into a pool and whose claims are over.

        A process that schedules such a move first says in the target pool that names may come
        (`PoolObject.coming`). A waiter there that is blocked by no other looks at these names
        whenever the next of their leases may be over: its own watch tells neither of that nor of
        renewals.

        Returns:
            The outlook, with the time to look again at; None where something has come.
        """
        if not pool.coming:
            self._observed.save()
            return outlook
        elsewhere = PoolView("").add_resources(self._context.moving_to(pool.type))
        over, next_at = self._observed.look(elsewhere)
        self._observed.save()
        ended = [self._claims.expire(elsewhere.resources[name]) for name in over.claims]
        return None if any(ended) else outlook._replace(look_again_at=next_at)

    def _check_still_there(self, view: PoolView) -> None:
        own = self.ticket
        self._check_there(view)
        is_put = own.object is not None
        if own.is_gone or (is_put and own.object_name not in view.tickets):
            if not own.is_of(view):
                raise refusals.deleted_meanwhile(view.pool_type)
            raise own.expired() if own.is_overdue else TicketGone()
        own.note_seen(view)

    def _reap(self, view: PoolView, looked: Looked) -> bool:
        """Take away the dead that are before it, all at once; returns whether all were dead."""
        own = self.ticket.as_seen(view)
        dead = [name for name in looked.over.tickets if name != own.id.name]
        if not remove_dead(dead, view, self._context):
            return False  # one was renewed at the last moment, and keeps its place
        for name in looked.over.claims:
            resource = view.resources[name]
            if not resource.member.takes_holders:  # nobody else would come to take it
                self._claims.expire(resource)
        for name in looked.over.lives - looked.over.claims:
            expire_membership(self._context, view.resources[name])
        return True


class ProcessEnds:
    """Watch processes for one waiter: those it is asked about, and those of better tickets.

    A ticket names the process that waits with it. A waiter behind a ticket of the same state
    directory watches that process, so a waiter that was killed there delays no other for its ttl,
    even without a keeper. The processes of other state directories may be on other machines, so
    they aren't watched.

    Args:
        context: Knows what is of its own state directory, and is told which waiters are dead.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._observed = context.observed
        self._asked = ProcessWatch()
        self._before = ProcessWatch()

    def see(self, own: TicketObject, view: PoolView) -> None:
        """Follow those who wait before a ticket; those of them that have ended are noted."""
        there = [p for each in nearest_first(own, view) if (p := self._process_of(each))]
        while True:
            living = [each for each in there if not self._observed.has_ended(each)]
            if not self._before.update(living[:_MOST_FOLLOWED]):
                return
            self._note()

    def listen(self, processes: Sequence[Process]) -> tuple[set[int], bool]:
        """Follow some others as well.

        Returns:
            What is readable when one of either has ended; and whether one of those has already.
        """
        self._asked.update(processes)
        return self._asked.fds() | self._before.fds(), self._asked.any_ended

    def heard(self, woken: Set[int]) -> bool:
        """Note the ends that a sleep was woken by; returns whether one was asked for."""
        has_ended = not woken.isdisjoint(self._asked.fds())
        self._asked.heard(woken)
        self._before.heard(woken)
        self._note()
        return has_ended

    def close(self) -> None:
        """Stop following."""
        self._asked.close()
        self._before.close()

    def _note(self) -> None:
        for process in self._before.ended:
            self._observed.note_end(process)

    def _process_of(self, ticket: TicketObject) -> Process | None:
        process, own = ticket.process, this_process()
        if process is None or process == own or process[:2] != own[:2]:  # of another machine
            return None
        if not 0 < process.pid <= _HIGHEST_PID:
            return None
        return process if self._context.is_from_here(ticket.claim_key) else None
