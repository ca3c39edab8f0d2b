"""A ticket, as the process knows it that waits with it.

It may become a claim without ever having been put, if the queue is empty and there is enough. Its
object is made by the waiter's thread, and renewed by the one that keeps it alive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import new_ticket, parked_ticket
from leasectl.engines.cluster.objects import (
    WAITER_TTL_SECONDS,
    Change,
    Found,
    ResourceObject,
    TicketObject,
)
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.contract import TicketExpired, TicketGone
from leasectl.engines.rules.turns import effective_priority, next_rise
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    LeaseError,
    NotAllowed,
)
from leasectl.model import Claimant, Lease
from leasectl.system.signals import pause

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context
    from leasectl.engines.cluster.events import ToldOf

# Who deletes a pool finds within that time that it is in use, or is done, or was killed.
CLOSING_SECONDS, LOOK_AGAIN_SECONDS = 1.0, 0.1


class OwnTicket:
    """One ticket, from before it is put until it is gone or has become a claim.

    Args:
        claimant: Whose it is; what it asks for.
        context: Of the place of its pool.

    Attributes:
        claimant: As given.
        request: What it asks for.
        claim_key: Of the claimant, with its state id.
        ttl_seconds: After so long without a renewal others take it for dead.
        object_name: Of its object, also before there is one.
        life: What it is kept alive by, and its claim; empty where they don't end by themselves.
        order: As `TicketObject` has it, from before it is put.
        is_parked: Its object says so as far as is known; None while that may have changed.
        is_tried: It may have been put, also without an answer that says so.
        unsure: The resources, as they were seen, to which a claim was sent whose outcome is still
            unknown; empty if the outcome is known.
        claim_sent_at: When that claim, or the last one, was sent, on the elapsed clock.
        refusal: Why it may not be renewed any more; None while it may.
        heard: The version of the newest event that has woken its waiter: an older view doesn't show
            what that was about.
        unwatched: Why its waiter may not follow what happens, and never could; None where it may.
        has_paid: The pool's pace has let it through already.
        queued_at: When the request was made, wall clock; None once its queueing was told.
        object: Its object as it was written here last; None before it is put.
        sent_at: When the last request was sent that gave it its full time, on the elapsed clock.
        is_gone: It was seen that it was taken away.
    """

    def __init__(self, claimant: Claimant, context: Context) -> None:
        self.claimant = claimant
        self.request = claimant.request
        self.claim_key = context.with_state_id(claimant.claim_key)
        self.ttl_seconds = self.request.ttl_seconds or WAITER_TTL_SECONDS
        self.object_name = context.objects.new_ticket_name(self.request.type)
        self.life = context.objects.new_life()
        self.order = 0
        self.is_parked: bool | None = False
        self.is_tried = False
        self.unsure: tuple[ResourceObject, ...] = ()
        self.claim_sent_at = 0.0
        self.refusal: AccessRefused | None = None
        self.unwatched: NotAllowed | None = None
        self.heard = 0
        self._was_watched = False
        self.has_paid = False
        self._context = context
        self._clock = context.clock
        self._made_at = self._clock.elapsed()
        self.queued_at: float | None = context.events.now()
        self._lock = threading.Lock()
        # Under the lock:
        self.object: TicketObject | None = None
        self._put_at = self.sent_at = self._clock.elapsed()
        self.is_gone = False
        self._pool_uid = ""
        self._closing_since: float | None = None  # on the elapsed clock

    def first_look(self) -> PoolView:
        """The pool as it is, before this is put: who can't look has asked for nothing yet.

        A deletion may be under way that finds it in use.
        """
        request = self.request
        try:
            is_any = request.name is None and not request.where
            view = self._context.glance(request.type, request.count) if is_any else None
            view = view or self._context.pool(request.type)
            for _ in range(int(CLOSING_SECONDS / LOOK_AGAIN_SECONDS)):
                if not view.is_closing:
                    break
                pause(LOOK_AGAIN_SECONDS)
                view = self._context.pool(request.type)
            return view
        except BackendUnreachable as error:
            error.asked = self.is_tried
            raise

    # Its object

    @property
    def is_overdue(self) -> bool:
        """Whether others may have taken it for dead by now."""
        is_put = self.object is not None
        return is_put and self._clock.elapsed() - self.sent_at >= self.ttl_seconds

    def new_object(self) -> TicketObject:
        """Return how it is put; its time counts from now."""
        with self._lock:
            self.sent_at = self._put_at = self._clock.elapsed()
        self.is_tried = True
        return self._unseen()

    def _unseen(self) -> TicketObject:
        return new_ticket(
            self.object_name,
            self.claimant,
            self.claim_key,
            ttl_seconds=self.ttl_seconds,
            wall=self._clock.wall(),
            life=self.life,
            order=self.order,
        )

    def note(self, found: Found | None, *, sent_at: float | None = None) -> None:
        """Its object is so now.

        Args:
            found: The object.
            sent_at: When the renewal was sent that has made it so; None where that wasn't one.
        """
        with self._lock:
            if isinstance(found, TicketObject):
                place = found.place if self.object is None else self.object.place
                self.object = found._replace(place=min(place, found.place))
            if sent_at is not None:
                self.sent_at = sent_at

    def park(self, is_parked: bool) -> None:
        """Let others pass it, or no longer.

        A renewal at the same time may note an older object here: what counts is what was written.

        Raises:
            TicketGone, TicketExpired: It isn't in the queue any more.
        """
        if self.is_parked == is_parked:
            return
        assert self.object is not None, "it is put before"
        self.is_parked = None
        written = self._context.change(
            self.object,
            lambda seen: Change(seen, parked_ticket(seen, is_parked, wall=self._clock.wall())),
        )
        if written is None:
            raise self.expired() if self.is_overdue else TicketGone()
        self.note(written.object)
        self.is_parked = is_parked

    def as_put(self) -> TicketObject:
        """Return what to take away; without an answer to its creation, only its name counts."""
        return self.object or self._unseen()

    # Its events

    def told_of_queueing(self) -> ToldOf:
        """Return the event of its queueing; none if that is written already."""
        at = self.queued_at
        return () if at is None else self._context.events.queued(self.claimant, at=at)

    def told_of_grant(self, leases: Sequence[Lease], resources: Iterable[ResourceObject]) -> ToldOf:
        """Return the events of its grant, and of its queueing if that isn't written yet."""
        waited, queued_at = self._clock.elapsed() - self._made_at, self.queued_at
        return self._context.events.granted(
            self.claimant, leases, resources, waited=waited, queued_at=queued_at
        )

    def told_of_end(self, why: str) -> ToldOf:
        """Return the event of its end without a grant; none if it was never put."""
        if self.object is None:
            return ()
        waited = self._clock.elapsed() - self._made_at
        return self._context.events.gave_up(
            self.claimant, self.object.place, waited=waited, why=why
        )

    # Its waiter's watch

    def note_watched(self) -> None:
        """Its waiter follows what happens."""
        self._was_watched, self.unwatched = True, None

    def note_heard(self, version: int) -> None:
        """Its waiter is about to be woken by an event of that version."""
        with self._lock:
            self.heard = max(self.heard, version)

    def note_unwatched(self, reason: LeaseError) -> None:
        """Its waiter can't follow what happens.

        Rights that were there and are gone may come again; those that were never there don't come
        by themselves.
        """
        if not self._was_watched and self._context.objects.is_forbidden(reason):
            self.unwatched = NotAllowed(str(reason))

    # Its place

    def note_seen(self, view: PoolView) -> None:
        """It is in the queue of that pool, or about to be put there."""
        self._pool_uid = "" if view.pool is None else view.pool.id.uid

    def is_of(self, view: PoolView) -> bool:
        """Tell whether it was in the queue of that pool, and not of one that was deleted since."""
        return view.pool is not None and view.pool.id.uid == self._pool_uid

    def may_be_called_off(self, view: PoolView) -> bool:
        """Return whether a deletion of its pool may still find that it is in use."""
        now = self._clock.elapsed()
        if not view.is_closing or self.object is None:
            self._closing_since = None
            return False
        if self._closing_since is None:
            self._closing_since = now
        return now - self._closing_since < CLOSING_SECONDS

    def expired(self) -> TicketExpired:
        """Say that its place is lost."""
        return TicketExpired(
            "lost the queue position: the server received no renewal for "
            f"{self.ttl_seconds}s; try again"
        )

    def as_seen(self, view: PoolView) -> TicketObject:
        """Return it as a place in a queue: behind all others before it is put."""
        own, there = self.object, view.tickets.get(self.object_name)
        if own is not None:
            is_newer = there is not None and there.id.version > own.id.version
            return there._replace(place=own.place) if there is not None and is_newer else own
        return self._unseen()._replace(place=view.version)

    # Its priority

    def counts_as(self, aging_seconds: float) -> int:
        """Return its effective priority by now, in a pool with that aging."""
        waited = self._clock.elapsed() - self._put_at
        return effective_priority(self.request.priority, waited, aging_seconds)

    def rises_at(self, aging_seconds: float) -> float | None:
        """When that is one more, on the elapsed clock; None for never."""
        now = self._clock.elapsed()
        seconds = next_rise(now - self._put_at, aging_seconds)
        return None if seconds is None else now + seconds
