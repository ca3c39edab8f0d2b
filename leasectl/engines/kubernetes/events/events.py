"""Record and post the events of steps and of requests, once they are done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.kubernetes.objects.names import object_of_pool
from leasectl.engines.kubernetes.objects.objects import ResourceObject
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.model import Claimant, Lease, ReleasedBy
from leasectl.state.event_rows import is_written
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.event_words import MembershipChange
    from leasectl.engines.kubernetes.events.own_record import OwnRecord
    from leasectl.engines.kubernetes.events.posting import Posting
    from leasectl.engines.kubernetes.events.posts import About
    from leasectl.engines.kubernetes.objects.objects import ResourceObject, TicketObject
    from leasectl.engines.membership import Member, Pools
    from leasectl.state.event import Event, EventKind


_DECIMALS = 6  # of a second
_MICROS = 1_000_000
TAKEN_OVER = "TakenOver"


class KubernetesEvents:
    """Has the events of one namespace be written.

    Args:
        own: Where this state directory has them; None for nowhere.
        posting: What sends them to the cluster; None for nothing.
        clock: Where times come from.
        caller: Who makes and changes pools.
    """

    def __init__(
        self,
        own: OwnRecord | None = None,
        posting: Posting | None = None,
        *,
        clock: Clock,
        caller: str = "",
    ) -> None:
        self._own = own
        self._posting = posting
        self._clock = clock
        self._caller = caller
        self._is_wanted = posting is not None and (own is None or own.is_kept)

    def now(self) -> float:
        """When a step is about to be done: wall clock, in seconds, as precise as claims have it."""
        whole, micros = divmod(int(self._clock.wall() * _MICROS), _MICROS)
        return whole + micros / _MICROS

    # Of a request

    def queued(self, claimant: Claimant, ticket: int, *, at: float) -> None:
        """A ticket was put; at that time it was about to be."""
        if self._is_wanted:
            from leasectl.engines.kubernetes.events import event_facts

            self._write_of_pool(event_facts.queued(claimant, ticket=ticket, now=at))

    def granted(
        self,
        claimant: Claimant,
        leases: Sequence[Lease],
        resources: Iterable[ResourceObject],
        *,
        waited: float,
        queued_at: float | None = None,
    ) -> None:
        """A request has become leases.

        Args:
            claimant: Whose.
            leases: Which.
            resources: What is known of their objects.
            waited: How long it took, in seconds.
            queued_at: When it was made, wall clock, where nobody has been told of that yet.
        """
        if not self._is_wanted:
            return
        from leasectl.engines.kubernetes.events import event_facts

        event = event_facts.granted(claimant, leases, waited=waited)
        first = [event]
        if queued_at is not None:
            before = event_facts.queued(claimant, ticket=event.ticket, now=queued_at)
            first = [before, event]
        self._write(first, resources)

    def gave_up(
        self, claimant: Claimant, ticket: int, *, at: float, waited: float, why: str
    ) -> None:
        """Its owner has taken a ticket away that became nothing."""
        if self._is_wanted:
            from leasectl.engines import event_words

            self._write_of_pool(
                event_words.gave_up(claimant, ticket=ticket, now=at, waited=waited, why=why)
            )

    def withdrawn(self, ticket: TicketObject, why: str = "") -> None:
        """Somebody else has taken a ticket away; without a reason, because that was withdrawn."""
        if self._is_wanted and ticket.claim_key:
            from leasectl.engines.event_words import WITHDRAWN
            from leasectl.engines.kubernetes.events import event_facts

            why = why or WITHDRAWN
            self._write_of_pool(event_facts.withdrawn(ticket, now=self.now(), why=why))

    # Of claims

    def ended(
        self,
        resources: Iterable[ResourceObject],
        *,
        by: ReleasedBy,
        at: float,
        reason: str = "",
        title: str = "",
    ) -> None:
        """Claims were ended.

        Args:
            resources: As they were before that; what nobody held doesn't matter.
            by: Who or what has ended them.
            at: When that was about to be done, wall clock.
            reason: For people; of what was taken out of a pool, who has done that.
            title: What it is called in Kubernetes; empty for what it is.
        """
        if not self._is_wanted:
            return
        from leasectl.engines.kubernetes.events import event_facts

        if by == "removal":
            reason = reason or self._caller
        for each in event_facts.alike(resources):
            self._write(event_facts.ended(each, by=by, now=at, reason=reason), each, title=title)

    def lost(self, resource: ResourceObject, *, by: ReleasedBy, reason: str) -> None:
        """A claim was taken from its holder, and is kept for it until its time is over."""
        if not self._is_wanted:
            return
        from leasectl.engines.kubernetes.events import event_facts

        for each in event_facts.alike([resource]):
            self._write([event_facts.lost(each, by=by, now=self.now(), reason=reason)], each)

    def noted(self, resource: ResourceObject, text: str) -> None:
        """Something was noted at a claim, of which that is told; empty for nothing."""
        if not (self._is_wanted and text):
            return
        from leasectl.engines.kubernetes.events import event_facts

        for each in event_facts.alike([resource]):
            self._write([event_facts.noted(each[0], now=self.now(), text=text)], each)

    # Of pools

    def of_pool(
        self, kind: EventKind, pool_type: str, names: Sequence[str], *, at: float, reason: str = ""
    ) -> None:
        """A pool was made, changed or deleted, which was about to be done at that time."""
        if self._is_wanted:
            from leasectl.engines.kubernetes.events import event_facts

            self._write_of_pool(
                event_facts.of_pool(
                    kind, pool_type, names, now=at, caller=self._caller, reason=reason
                )
            )

    def members_changed(
        self, before: Sequence[Member], after: Sequence[Member], *, at: float
    ) -> None:
        """Names have changed, in a pool or from one to another."""
        if self._is_wanted:
            from leasectl.engines.event_words import membership_changes

            self._changed(membership_changes(before, after), at)

    def belonging_changed(self, before: Pools, after: Pools, *, at: float) -> None:
        """The default pool is another, or patterns are."""
        if self._is_wanted:
            from leasectl.engines.event_words import belonging_changes

            self._changed(belonging_changes(before, after), at)

    def _changed(self, changes: Iterable[MembershipChange], at: float) -> None:
        for pool_type, names, reason in changes:
            self.of_pool("pool changed", pool_type, names, at=at, reason=reason)

    def happened(self, event: Event) -> None:
        """Something that isn't the engine's affair was done, like a work."""
        self._write_of_pool(event)

    # How

    def _write_of_pool(self, event: Event) -> None:
        from leasectl.engines.kubernetes.events.posts import About

        self._write([event], (), about=(About(object_of_pool(event.type)),))

    def _write(
        self,
        events: Sequence[Event],
        resources: Iterable[ResourceObject],
        *,
        about: Sequence[About] = (),
        title: str = "",
    ) -> None:
        if not self._is_wanted:
            return
        from leasectl.engines.kubernetes.events.posts import About, Post

        written = tuple(_rounded(each) for each in events if is_written(each.type, each.kind))
        if not written or self._posting is None:
            return
        if self._own is not None:
            for each in written:
                self._own.add(each)
        leases = tuple(About(each.id.name, each.id.uid) for each in resources) or tuple(about)
        self._posting.send(Post(written, leases, title))


def _rounded(event: Event) -> Event:
    """An event whose durations are no longer to read than they have to be."""
    wait, hold = event.wait_seconds, event.hold_seconds
    return event._replace(
        wait_seconds=None if wait is None else round(wait, _DECIMALS),
        hold_seconds=None if hold is None else round(hold, _DECIMALS),
    )


class RequestEvents:
    """The events of one request.

    Args:
        ticket: Its own.
        events: Of what happens in the namespace.
    """

    def __init__(self, ticket: OwnTicket, events: KubernetesEvents) -> None:
        self._ticket = ticket
        self._events = events
        self._made_at: float | None = events.now()  # None once it was told

    def queued(self) -> None:
        """Its ticket was put."""
        own, made_at = self._ticket, self._made_at
        if own.object is not None and made_at is not None:
            self._events.queued(own.claimant, own.object.place, at=made_at)
            self._made_at = None

    def granted(self, leases: Sequence[Lease], resources: Iterable[ResourceObject]) -> None:
        """It has become leases of resources."""
        own = self._ticket
        self._events.granted(
            own.claimant, leases, resources, waited=own.waited, queued_at=self._made_at
        )

    def gave_up(self, why: str) -> None:
        """Its ticket was taken away."""
        own = self._ticket
        if own.object is not None:
            ticket, waited = own.object.place, own.waited
            self._events.gave_up(
                own.claimant, ticket, at=self._events.now(), waited=waited, why=why
            )
