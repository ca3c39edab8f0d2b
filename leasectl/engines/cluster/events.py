"""The events of each step of an acquisition, and of pools.

Times order the events: each is taken before the write that the event tells of, so by
one clock nothing comes before what it came of. Times between two dates are never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.cluster.objects import Claim, ResourceObject, TicketObject, Told
from leasectl.engines.rules.events import (
    AGAINST_ITS_WILL,
    WITHDRAWN,
    MembershipChange,
    belonging_changes,
    gave_up,
    handle_of,
    membership_changes,
    of_claimant,
    short,
    wanted,
)
from leasectl.model import Claimant, Lease, ReleasedBy
from leasectl.state.event import Event, EventKind
from leasectl.state.event_rows import is_written
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.rules.membership import Member, Pools

# What a write is told of: nothing, where no events are kept.
ToldOf = tuple[Told, ...]

_DECIMALS = 6  # of a second
_MICROS = 1_000_000
TAKEN_OVER = "TakenOver"
# An event with longer names gives only their number: nobody reads so many.
_MOST_NAME_CHARACTERS = 50_000


class ClusterEvents:
    """What is told of each step in one place; it is written with the step.

    Args:
        are_kept: Whether anything is to be told.
        clock: Where times come from.
        caller: Who makes and changes pools.
    """

    def __init__(self, *, are_kept: bool = False, clock: Clock, caller: str = "") -> None:
        self._are_kept = are_kept
        self._clock = clock
        self._caller = caller

    def now(self) -> float:
        """When a step is about to be done: wall clock, in seconds, as precise as claims have it."""
        whole, micros = divmod(int(self._clock.wall() * _MICROS), _MICROS)
        return whole + micros / _MICROS

    # Of a request

    def queued(self, claimant: Claimant, *, at: float) -> ToldOf:
        """Return the event of a ticket that is put at that time."""
        return self._told([of_claimant("queued", claimant, at)])

    def granted(
        self,
        claimant: Claimant,
        leases: Sequence[Lease],
        resources: Iterable[ResourceObject],
        *,
        waited: float,
        queued_at: float | None = None,
    ) -> ToldOf:
        """Return the events of a request that becomes leases.

        Args:
            claimant: Whose.
            leases: Which.
            resources: What is known of their objects.
            waited: How long it took, in seconds.
            queued_at: When it was made, wall clock, if its queueing wasn't told yet.
        """
        first = leases[0]
        granted = of_claimant("granted", claimant, first.acquire_time)._replace(
            names=tuple(each.name for each in leases),
            fences=tuple(each.fence for each in leases),
            ticket=first.ticket,
            grant=first.grant,
            wait_seconds=max(0.0, waited),
        )
        if queued_at is None:
            return self._told([granted], resources)
        queued = of_claimant("queued", claimant, queued_at)._replace(ticket=first.ticket)
        return self._told([queued, granted], resources)

    def gave_up(self, claimant: Claimant, ticket: int, *, waited: float, why: str) -> ToldOf:
        """Return the event of a ticket that its owner removes, and that became no claim."""
        event = gave_up(claimant, ticket=ticket, now=self.now(), waited=waited, why=why)
        return self._told([event])

    def withdrawn(self, ticket: TicketObject, why: str = WITHDRAWN) -> ToldOf:
        """Return the event of a ticket that another process than its owner removes."""
        if not ticket.claim_key:
            return ()
        handle, acquisition = handle_of(ticket.claim_key)
        now = self.now()
        event = Event(
            0,
            now,
            "gave up",
            ticket.pool,
            wanted(ticket.want.name),
            handle=handle,
            acquisition=acquisition,
            holder_identity=ticket.holder_identity,
            count=ticket.count,
            priority=ticket.priority,
            ticket=ticket.place,
            wait_seconds=max(0.0, now - ticket.since),
            reason=short(why),
        )
        return self._told([event])

    # Of claims

    def ended(
        self,
        resources: Iterable[ResourceObject],
        *,
        by: ReleasedBy,
        at: float,
        reason: str = "",
        title: str = "",
    ) -> ToldOf:
        """Return the events of claims that end; also of their loss, unless their holder ends them.

        Args:
            resources: As they are before that; what isn't held doesn't matter.
            by: Who or what ends them. A claim that was ended by force before was lost by that.
            at: When that is about to be done, wall clock.
            reason: For people; by default, of a removal from a pool, who does that.
            title: The title of the event in Kubernetes; empty for its kind.
        """
        if by == "removal":
            reason = reason or self._caller
        told: list[Told] = []
        for each in _alike(resources):
            was_ended = any(resource.claim and resource.claim.ended for resource in each)
            is_lost = by in AGAINST_ITS_WILL and not was_ended
            kinds: tuple[EventKind, ...] = ("lost", "released") if is_lost else ("released",)
            who = "force" if was_ended else by
            events = [_of_claim(kind, each, who, at, reason) for kind in kinds]
            told += self._told(events, each, title=title)
        return tuple(told)

    def lost(
        self, resources: Iterable[ResourceObject], *, by: ReleasedBy, at: float, reason: str
    ) -> ToldOf:
        """Return the events of claims that are lost, and are kept until they expire."""
        return tuple(
            told
            for each in _alike(resources)
            for told in self._told([_of_claim("lost", each, by, at, reason)], each)
        )

    def noted(self, resource: ResourceObject, text: str) -> ToldOf:
        """Return the event of a note that changes at a claim; none without a text."""
        if not text or not _alike([resource]):
            return ()
        event = _of_claim("noted", [resource], "command", self.now(), text)
        return self._told([event._replace(hold_seconds=None, by="")], [resource])

    # Of pools

    def of_pool(
        self, kind: EventKind, pool_type: str, names: Sequence[str], *, at: float, reason: str = ""
    ) -> ToldOf:
        """Return the event of a pool that is made, changed or deleted, with some names."""
        event = Event(
            0,
            at,
            kind,
            pool_type,
            tuple(names) if sum(map(len, names)) <= _MOST_NAME_CHARACTERS else (),
            holder_identity=self._caller,
            count=len(names),
            reason=short(reason),
        )
        return self._told([event])

    def members_changed(
        self, before: Sequence[Member], after: Sequence[Member], *, at: float
    ) -> ToldOf:
        """Return the events of names that change, in a pool or from one to another."""
        return self._changed(membership_changes(before, after), at)

    def belonging_changed(self, before: Pools, after: Pools, *, at: float) -> ToldOf:
        """Return the events of a new default pool, or of changed patterns."""
        return self._changed(belonging_changes(before, after), at)

    def _changed(self, changes: Iterable[MembershipChange], at: float) -> ToldOf:
        return tuple(
            told
            for pool_type, names, reason in changes
            for told in self.of_pool("pool changed", pool_type, names, at=at, reason=reason)
        )

    def happened(self, event: Event) -> ToldOf:
        """Return what is told of an event that isn't the engine's, like the end of a work."""
        return self._told([event])

    def _told(
        self,
        events: Sequence[Event],
        resources: Iterable[ResourceObject] = (),
        *,
        title: str = "",
    ) -> ToldOf:
        if not self._are_kept:
            return ()
        written = tuple(_rounded(each) for each in events if is_written(each.type, each.kind))
        if not written:
            return ()
        return (Told(written, tuple(each.id for each in resources), title),)


def _rounded(event: Event) -> Event:
    """An event whose durations are no longer to read than they have to be."""
    wait, hold = event.wait_seconds, event.hold_seconds
    return event._replace(
        wait_seconds=None if wait is None else round(wait, _DECIMALS),
        hold_seconds=None if hold is None else round(hold, _DECIMALS),
    )


def _alike(resources: Iterable[ResourceObject]) -> list[list[ResourceObject]]:
    """Group resources by claim, for one event each; leave out what isn't held."""
    together: dict[tuple[str, str, int], list[ResourceObject]] = {}
    for each in resources:
        if each.claim is not None and each.claim.claim_key and each.member.pool is not None:
            which = (each.member.pool, each.claim.claim_key, each.claim.grant)
            together.setdefault(which, []).append(each)
    return list(together.values())


def _of_claim(
    kind: EventKind,
    resources: Sequence[ResourceObject],
    by: ReleasedBy,
    now: float,
    reason: str,
) -> Event:
    claims = [each.claim for each in resources if each.claim is not None]
    first: Claim = claims[0]
    handle, acquisition = handle_of(first.claim_key)
    return Event(
        0,
        now,
        kind,
        str(resources[0].member.pool),
        tuple(each.name for each in resources),
        tuple(each.fence for each in claims),
        handle=handle,
        acquisition=acquisition,
        holder_identity=first.holder_identity,
        count=len(resources),
        ticket=first.place,
        grant=first.grant,
        hold_seconds=max(0.0, now - first.acquire_time),
        by=by,
        reason=short(reason),
    )
