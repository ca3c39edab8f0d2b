"""Each step of a ticket, until it has become a claim.

Each is one transaction, and what is seen for it one request more; a process may be killed after
any of them. What its process knows of a ticket from one step to the next is in `EtcdTicket`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leasectl.engines import event_words
from leasectl.engines.contract import Outlook, TicketGone
from leasectl.engines.etcd.claims.claims import EtcdClaims, Reaped
from leasectl.engines.etcd.claims.renewals import EtcdRenewals
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import read
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pools.listing import check_there
from leasectl.engines.etcd.queues.entrance import EtcdEntrance
from leasectl.engines.etcd.queues.glance import glance
from leasectl.engines.etcd.queues.look import look
from leasectl.engines.etcd.queues.pace import EtcdPaces, Owed
from leasectl.engines.etcd.queues.possible import why_unmet
from leasectl.engines.etcd.queues.standing import EtcdStandings
from leasectl.engines.etcd.queues.ticket import EtcdTicket
from leasectl.engines.etcd.queues.view import QueueView
from leasectl.engines.etcd.queues.withdrawals import EtcdWithdrawals
from leasectl.engines.etcd.records import (
    Claim,
    Free,
    last_fence,
    parse_free,
)
from leasectl.engines.facts import Standing
from leasectl.errors import BackendUnreachable
from leasectl.model import Lease, Request
from leasectl.system.clock import Clock, earliest

if TYPE_CHECKING:
    from leasectl.engines.etcd.members.times import MemberTimes

# By so much it may delay who comes next that whoever waits for the time was killed.
_WORTH_COUNTING_SECONDS = 5.0
NOTHING_REAPED = Reaped(any=False, next_at=None)


class EtcdQueues:
    """The queues below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for each ticket, and for each that becomes nothing.
        claims: The claims in it.
        renewals: Of these claims.
        clock: Where times come from.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        events: EtcdEvents,
        claims: EtcdClaims,
        renewals: EtcdRenewals,
        *,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._claims = claims
        self._renewals = renewals
        self._clock = clock
        self._entrance = EtcdEntrance(gateway, keys, events, clock=clock)
        self._withdrawals = EtcdWithdrawals(gateway, keys, events, clock=clock)
        self._standings = EtcdStandings(gateway, keys, clock=clock)
        self._paces = EtcdPaces(gateway, keys)

    def check(self, own: EtcdTicket) -> None:
        """Implements `Waiter.check`."""
        self._entrance.check(own.request)

    def enqueue(self, own: EtcdTicket, *, again: bool = False) -> None:
        """Implements `Waiter.enqueue`."""
        self._entrance.enter(own, again=again)

    def claim(self, own: EtcdTicket) -> Outlook:
        """Implements `Waiter.claim`."""
        leases = self._find_claim(own)
        if leases is None and (not own.is_head or own.priority_due is not None):
            view = own.take_entry() or self._glance(own) or self._look(own)
            if not view.could_meet(own.request):
                return self._wait_until_met(own, view)
            if view.before is not None:
                return self._wait_behind(own, view)
            own.reach_head(view)
        leases = leases or self._claim_by_news(own) or self._claim_in_time(own)
        return self._claim(own) if leases is None else Outlook(leases)

    def standing(self, own: EtcdTicket) -> Standing:
        """Implements `Waiter.standing`."""
        return self._standings.standing(
            own.request, own.ticket.number, passes=own.needs.may_change, left=own.left
        )

    def dequeue(self, own: EtcdTicket, why: str) -> None:
        """Implements `Waiter.dequeue`."""
        claim_key, now = own.claimant.claim_key, self._clock.wall()
        if not own.is_put:
            self.withdraw(claim_key, why)  # it may be there, and nobody told us
            return
        ticket = own.ticket
        event = event_words.gave_up(
            ticket.claimant, ticket=ticket.number, now=now, waited=own.waited, why=why
        )
        if not self._withdrawals.drop(own.claim_id, claim_key, own.ticket.number, [event]):
            self._claims.give_back(own.claim_id, by="command")

    def withdraw(self, claim_key: str, why: str) -> None:
        """Implements `Engine.withdraw`."""
        self._withdrawals.withdraw(claim_key, why)

    # Claiming at the head

    def _find_claim(self, own: EtcdTicket) -> tuple[Lease, ...] | None:
        """What a claim got whose answer never came, with its full time again; None for nothing."""
        if not own.is_unsure:
            return None
        sent_at, renewed = self._clock.elapsed(), self._clock.wall()
        claim = self._renewals.renew_claim(own.claim_id, own.claimant.claim_key).claim
        own.settle_claim()
        if claim is None:
            return None
        own.note_sent(sent_at)
        return self._granted(own, claim, renewed)

    def _claim_by_news(self, own: EtcdTicket) -> tuple[Lease, ...] | None:
        """Claim what it has been told of, unseen; None when that can't be done."""
        guessed = own.guess_view()
        if guessed is None or own.left(own.owed(guessed)):
            return None
        return self._take(own, guessed, tuple(map(parse_free, guessed.page)))

    def _claim_in_time(self, own: EtcdTicket) -> tuple[Lease, ...] | None:
        """Claim what it has waited with for the pool's pace, unseen; None when that can't be."""
        due = own.take_due()
        return None if due is None else self._take(own, *due)

    def _claim(self, own: EtcdTicket) -> Outlook:
        """Claim what is seen to be free, if that is enough and the pool's pace allows it."""
        while True:
            view = own.take_view() or self._look(own)
            if not view.could_meet(own.request):
                return self._wait_until_met(own, view)
            if view.before is not None:
                return self._wait_behind(own, view)
            if view.died:
                self._withdrawals.reap(own.request.type)
            reaped = self._claims.reap(own.request.type) if view.expired else NOTHING_REAPED
            if reaped.any:
                continue
            free = self._free(own.request, view)
            if len(free) < own.request.count:
                coming = self._see_coming(own, view)
                if coming.any:
                    continue
                own.wait_at_head(view)
                return self._outlook_at_head(own, reaped, coming)
            left = self._until_next_grant(own, own.owed(view))
            if left:
                own.wait_for_pace(view, free)
                due = self._clock.elapsed() + left
                return self._outlook_at_head(own, reaped)._replace(next_grant_at=due)
            leases = self._take(own, view, free)
            if leases is not None:
                return Outlook(leases)
            if any(each.has_life for each in free):
                self._times().settle([each.name for each in free])

    def _see_coming(self, own: EtcdTicket, view: QueueView) -> Reaped:
        """Have that be there which has come to the pool by itself, as is rare."""
        if not view.comings:
            return NOTHING_REAPED
        return self._times().see(own.request.type, view.comings)

    def _times(self) -> MemberTimes:
        from leasectl.engines.etcd.members.times import MemberTimes

        return MemberTimes(self._gateway, self._keys, self._events, self._claims, clock=self._clock)

    def _outlook_at_head(self, own: EtcdTicket, *reaped: Reaped) -> Outlook:
        look_again_at = earliest(own.rises_at, *(each.next_at for each in reaped))
        return Outlook(is_head=True, is_behind=own.is_behind, look_again_at=look_again_at)

    def _until_next_grant(self, own: EtcdTicket, owed: Owed) -> float:
        """How long the pool's pace has it wait, in seconds; 0 if it doesn't."""
        left = own.left(owed)
        if owed.level and own.begin_to_count(owed):
            is_late = own.ticket.number > owed.since
            if is_late and owed.counted_by:
                own.catch_up(owed, self._paces.counted(owed))
            elif left and not owed.counted_by and (is_late or left > _WORTH_COUNTING_SECONDS):
                self._paces.have_counted(own.request.type, owed)
        return own.left(owed)

    def _wait_behind(self, own: EtcdTicket, view: QueueView) -> Outlook:
        """Have it wait behind another; one that came later, and has counted less, is told."""
        own.wait_behind(view)
        owed = own.owed(view)
        if owed.level and owed.is_paid(own.counted(owed)):
            self._paces.settle(own.request.type, owed)
        return Outlook(is_behind=True, look_again_at=own.rises_at)

    def _wait_until_met(self, own: EtcdTicket, view: QueueView) -> Outlook:
        """Have it wait until what is in the pool could meet its request again; others pass it."""
        coming = self._see_coming(own, view)
        own.wait_until_met(view)
        if not coming.any:
            unmet = why_unmet(self._gateway, self._keys, self._events, own.request)
            if unmet is not None:
                return Outlook(impossible=str(unmet), look_again_at=coming.next_at)
        return Outlook(look_again_at=self._clock.elapsed())  # it has just changed

    def _take(
        self, own: EtcdTicket, view: QueueView, chosen: Sequence[Free]
    ) -> tuple[Lease, ...] | None:
        renewed = own.renewed
        owed = own.owed(view)
        level = owed.after_grant(own.counted(owed)) if owed.settings.pace_seconds else None
        try:
            made = self._claims.make(
                own.ticket,
                own.etcd_lease_id,
                renewed,
                view,
                chosen,
                level=level,
                waited=own.waited,
            )
        except EtcdLeaseGone:
            raise own.expired() from None
        except BackendUnreachable:
            own.doubt_claim()
            raise
        if made is None:
            return None
        if level is not None and not made.waiting:  # else there is somebody who counts
            revision = made.claim.revision
            owed = owed._replace(level=level, since=revision, written=revision)
            self._paces.have_counted(own.request.type, owed)
        return self._granted(own, made.claim, renewed)

    def _granted(self, own: EtcdTicket, claim: Claim, renewed: float) -> tuple[Lease, ...]:
        expires = claim.lease_duration_seconds is not None
        if expires and own.is_overdue:  # the answer took its time; somebody may have it by now
            self._claims.give_back(own.claim_id, by="command")
            raise own.expired()
        return claim.leases(renewed)

    # Looking

    def _glance(self, own: EtcdTicket) -> QueueView | None:
        """See that it is its turn, and what there is for it; None where that takes a look."""
        view = glance(self._gateway, self._keys, own.ticket, own.seen, own.news)
        if view is not None:
            own.begin_look()
            own.note_view(view)
        return view

    def _look(self, own: EtcdTicket) -> QueueView:
        """See how things are, and first have it count with what it has to by now."""
        while True:
            own.begin_look()
            try:
                view = look(
                    self._gateway,
                    self._keys,
                    own.ticket,
                    own.etcd_lease_id,
                    is_turn=own.is_head,
                    needs=own.needs,
                    change=own.rise_due(),
                )
            except EtcdLeaseGone:
                raise own.expired() from None
            if view.own is None or view.own.create_revision != own.ticket.number:
                raise own.expired() if own.is_overdue else TicketGone()
            own.note_looked(view)
            if own.priority_due is None:
                return view

    def _free(self, request: Request, view: QueueView) -> tuple[Free, ...]:
        """What of that which was seen is free to claim; to be asked when it is its turn.

        Raises:
            NotFound: The pool has gone.
        """
        check_there(self._gateway, self._keys, request.type, view.pool)
        if request.name is None:
            return tuple(map(parse_free, view.page[: request.count]))
        # It can't have moved since: only a claim moves it, and none but this ticket may make one.
        key = self._keys.free(request.type, last_fence(view.page[0]), request.name)
        (found,) = self._gateway.read(read(key)).answers
        return tuple(map(parse_free, found.items))
