"""Each step of a ticket, until it is a claim.

Order. The place of a ticket is the resourceVersion that its create answered: it grows with each
write of the cluster. Whoever looks by a list that is later than its own ticket sees all that have a
smaller place and are there; and what is before it can only become less, but for who has a higher
priority, which is judged by what is seen at the claim. So by a view that a watch keeps up to date,
however late, nobody ever claims before who came earlier, and lives, and could use it.

*The fast road*: where a list shows no ticket and enough that is free, it is claimed without one, by
what that list has shown; its place is the list's resourceVersion. Every ticket that is put later
has a larger one, and none was there: it is first. Who has put such a ticket meanwhile and sees the
same resources free takes one or the other of them, or comes second at one: then one of the two
writes is refused. A refused one on the fast road queues with a ticket like everybody, and so comes
behind all who have one by then. It isn't tried again.

*A stopped process* that goes on after its ticket was taken for dead finds that out before it
claims, by its own clock; should it be stopped between that and its write, this is still guarded by
the version of a resource that nobody has had since. At worst one that was next keeps its turn.

Killed before its ticket is put, a waiter leaves nothing; after that, a ticket, which whoever waits
behind it takes away when it hasn't been renewed for its ttl, all that are dead at once. A create
that arrives after its sender was killed is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from leasectl.engines import refusals
from leasectl.engines.contract import Outlook, TicketGone
from leasectl.engines.facts import Standing
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.events.events import RequestEvents
from leasectl.engines.kubernetes.objects.objects import Identity, ResourceObject, TicketObject
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.pools.listing import no_pool
from leasectl.engines.kubernetes.queues.dead_tickets import remove_dead
from leasectl.engines.kubernetes.queues.observed import Looked, Observed
from leasectl.engines.kubernetes.queues.standing import standing_of
from leasectl.engines.kubernetes.queues.ticket import LOOK_AGAIN_SECONDS, OwnTicket
from leasectl.engines.kubernetes.queues.turns import (
    Turn,
    in_order,
    members_of,
    to_follow,
    turn_of,
)
from leasectl.engines.kubernetes.waiting.coming import until_more
from leasectl.engines.kubernetes.waiting.ends import Ends
from leasectl.engines.kubernetes.waiting.leftovers import begin_taking_away, left_at
from leasectl.engines.kubernetes.waiting.paying import pay, seconds_to_pay
from leasectl.engines.kubernetes.waiting.session import WaitSession
from leasectl.engines.kubernetes.waiting.verdict import Verdict, verdict_of
from leasectl.engines.possible import unmet
from leasectl.model import Lease, Process
from leasectl.system.clock import Clock
from leasectl.system.wakeup import Wakeup

# So many follow the pool, to move on with a claim and not with the end of a ticket. A thousand of
# them cost a server 32 ms a write (measured), so these half a millisecond.
FEW_NEXT = 16
# What is heard within that time isn't asked for.
_HEAR_SECONDS = 0.05


class KubernetesWaiter:
    """One waiter, as `Waiter`.

    Args:
        ticket: Its own.
        store: Where the pool is.
        claims: The claims there.
        observed: What was seen of others' lives.
        session: The one that it shares with the others of its process.
        until: How long its steps may take, on the elapsed clock; None for as long as they take.
        clock: Where times come from.

    Attributes:
        ticket: As given.
        verdict: How it stood when it looked last, or was woken.
    """

    def __init__(
        self,
        ticket: OwnTicket,
        store: Store,
        claims: Claims,
        observed: Observed,
        session: WaitSession,
        *,
        until: float | None,
        clock: Clock,
    ) -> None:
        self.ticket = ticket
        self._events = RequestEvents(ticket, claims.events)
        self.verdict: Verdict | None = None
        self._store = store
        self._claims = claims
        self._observed = observed
        self._session = session
        self._until = until
        self._clock = clock
        self._ends = Ends(store, observed)
        self._wakeup: Wakeup | None = None
        self._view: PoolView | None = None  # what it has seen last
        self._is_fast = False  # and that it may claim by that, without a ticket
        self._far_behind: TicketObject | None = None  # if so, a ticket before it, as it follows

    @property
    def has_place(self) -> bool:
        return not self.ticket.is_overdue

    def check(self) -> None:
        with self._store.limited(self._until):
            self._check(self.ticket.first_look(self._store))

    def enqueue(self, *, again: bool = False) -> None:
        with self._store.limited(self._until):
            view = None if again else self._queue_seen()
            if view is None:
                view = self.ticket.first_look(self._store)
            if again:
                self._check_there(view)
            else:
                self._check(view)
            self._view, self._is_fast = view, not again and self._has_all(view)
            if not self._is_fast:
                self._put()

    def claim(self) -> Outlook:
        with self._store.limited(self._until):
            return self._claim()

    def standing(self) -> Standing:
        with self._store.limited(self._until):
            view = self._look()
            self._check_there(view)
            return standing_of(self.ticket, view, self._observed, now=self._clock.elapsed())

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
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
        with self._store.limited(self._until):
            own, self._is_fast = self.ticket, False
            if own.is_tried and self._store.take_away(own.identity(), as_seen=False) == "done":
                self._events.gave_up(why)
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
            raise no_pool(self._store, view.pool_type)

    def _has_all(self, view: PoolView) -> bool:
        """Tell whether nobody waits and there is enough."""
        if in_order(view):
            return False
        return len(self._turn(view, self._observed.look(view)).free) >= self.ticket.request.count

    def _turn(self, view: PoolView, looked: Looked) -> Turn:
        return turn_of(self.ticket.as_seen(view), view, looked.over)

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
        return self._list() if view is None else view

    def _list(self) -> PoolView:
        """The pool as it is; refuses to wait where that may be asked and a watch may not."""
        unwatched, self.ticket.unwatched = self.ticket.unwatched, None
        view = self._store.pool(self.ticket.request.type)
        if unwatched is not None:
            raise unwatched
        return view

    def _queue_seen(self) -> PoolView | None:
        """The pool as a watch keeps it up to date, where somebody waits in it for sure.

        Whoever then puts its ticket needn't ask for more: by that it can't go on at once.
        """
        pool_watch = self._session.pool_watch(self.ticket.request.type)
        view = None if pool_watch is None else pool_watch.view()
        if view is None or not view.is_there or not in_order(view):
            return None
        return view if unmet(self.ticket.request, members_of(view)) is None else None

    # Putting the ticket

    def _put(self) -> None:
        own = self.ticket
        assert self._view is not None
        own.note_seen(self._view)
        written = self._store.create(own.body(), own.is_it)
        if written.raw is None:
            raise own.expired()  # it was made, and taken away, before anybody said so
        own.note(written.raw)
        self._events.queued()

    # Claiming

    def _claim(self) -> Outlook:
        own = self.ticket
        if own.unsure:
            leases = self._claims.find(own)
            if leases is not None:
                return self._granted(leases)
        if self._is_fast:
            assert self._view is not None
            self._is_fast, view = False, self._view
            outlook = self._claim_by(view)
            if outlook is not None and outlook.leases is not None:
                return outlook
            self._put()
            return self._claim_at_last(self._store.pool(own.request.type))
        return self._claim_at_last(self._look())

    def _claim_at_last(self, view: PoolView) -> Outlook:
        """Claim by what was seen, or by what is there when that wasn't so any more."""
        while True:
            outlook = self._claim_by(view)
            if outlook is not None:
                self.ticket.has_paid = False  # who sleeps now may do so for longer than a pace
                return outlook
            view = self._store.pool(self.ticket.request.type)

    def _claim_by(self, view: PoolView) -> Outlook | None:
        """Claim what is seen to be free, if it is its turn; None where somebody was faster."""
        own, self._view = self.ticket, view
        if own.may_be_called_off(view):
            return Outlook(look_again_at=self._clock.elapsed() + LOOK_AGAIN_SECONDS)
        self._check_still_there(view)
        self._ends.see(own.as_seen(view), view)
        looked = self._observed.look(view)
        if not self._reap(view, looked):
            return None
        turn, self.verdict = self._turn(view, looked), verdict_of(own, view, looked.over)
        self._far_behind = None
        if not turn.is_met:
            return self._until_more(Outlook(impossible=str(unmet(own.request, members_of(view)))))
        places = max(FEW_NEXT, 1)
        self._far_behind = to_follow(own.as_seen(view), turn, view, looked.over, places=places)
        if turn.before is not None:
            self._observed.save()
            return Outlook(is_behind=True)
        is_behind = bool(turn.others) and own.request.name is None
        if len(turn.free) < own.request.count:
            return self._until_more(Outlook(is_head=True, is_behind=is_behind))
        left = seconds_to_pay(own, view, self._observed, self._clock.elapsed())
        if left:
            self._observed.save()
            due = self._clock.elapsed() + left
            return Outlook(is_head=True, is_behind=is_behind, next_grant_at=due)
        return self._take(view, turn.free[: own.request.count])

    def _until_more(self, outlook: Outlook) -> Outlook | None:
        return until_more(outlook, self._view, self._store, self._claims, self._observed)

    def _check_still_there(self, view: PoolView) -> None:
        own = self.ticket
        self._check_there(view)
        is_put = own.object is not None
        if own.is_gone or (is_put and own.object_name not in view.tickets):
            if not own.is_of(view):
                raise refusals.deleted_meanwhile(view.pool_type)
            raise own.expired() if own.is_overdue else TicketGone()
        own.note_seen(view)

    def _take(self, view: PoolView, chosen: Sequence[ResourceObject]) -> Outlook | None:
        own = self.ticket
        if own.is_overdue:
            raise own.expired()
        if not pay(own, view, self._store, self._observed, self._clock.elapsed()):
            return None
        leases = self._claims.make(own, view, chosen)
        if leases is None:
            return None
        return self._granted(leases, left_at(chosen, view))

    def _granted(self, leases: tuple[Lease, ...], left: Collection[Identity] = ()) -> Outlook:
        own, ttl = self.ticket, self.ticket.request.ttl_seconds
        if ttl is not None and self._clock.elapsed() - own.claim_sent_at >= ttl:
            self._claims.give_back(own)  # the answers took their time; somebody may have it by now
            raise own.expired()
        self._events.granted(leases, self._claims.known(own.claimant.claim_key))
        begin_taking_away(own, left, self._store, self._session, self._clock)
        return Outlook(leases)

    def _reap(self, view: PoolView, looked: Looked) -> bool:
        """Take away the dead that are before it, all at once; returns whether all were dead."""
        own = self.ticket.as_seen(view)
        dead = [name for name in looked.over.tickets if name != own.id.name]
        if not remove_dead(dead, view, self._store, self._claims.events):
            return False  # one was renewed at the last moment, and keeps its place
        for name in looked.over.claims:
            resource = view.resources[name]
            if not resource.member.takes_holders:  # nobody else would come to take it
                self._claims.end_over(resource)
        for name in looked.over.lives - looked.over.claims:
            self._claims.end_life(view.resources[name])
        return True
