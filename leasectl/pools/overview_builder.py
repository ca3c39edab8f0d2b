"""Build the view model of pools from the store and the records."""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.leases.marks import parse_mark
from leasectl.model import Handle, Lease
from leasectl.pools.overview import (
    NOTHING_SAID,
    GuardPlace,
    Renewer,
    ShownLease,
    ShownMark,
    ShownMembership,
    ShownPool,
    ShownResource,
    ShownWaiter,
    parse_holder,
)
from leasectl.state.handles import renews_itself
from leasectl.state.rows import is_of_extension, is_on_record_elsewhere, without_keys
from leasectl.state.uses import LastUses, last_use
from leasectl.system.clock import Clock, earliest
from leasectl.system.process import is_dead, own_pid_namespace


class OverviewBuilder:
    """Build the view of pools that one state directory has.

    Args:
        handles: Its handles that aren't released, by their claim keys, and those that had what was
            ended by force and is kept for them.
        releases: When names of theirs are to be released by themselves, by the handles' ids and
            the names, CLOCK_BOOTTIME.
        uses: When names of theirs were in use last.
        shared: Other state directories hold leases in these pools as well.
        clock: Where times come from.
    """

    def __init__(
        self,
        handles: Mapping[str, Handle],
        releases: Mapping[tuple[str, str], float],
        uses: LastUses,
        *,
        shared: bool,
        clock: Clock,
    ) -> None:
        self._handles = handles
        self._releases = releases
        self._uses = uses
        self._shared = shared
        self._clock = clock

    def pool(self, pool: Pool) -> ShownPool:
        """A pool, all that is known of it."""
        return ShownPool(
            pool.type,
            tuple(map(self._resource, pool.resources)),
            tuple(_waiter(position, entry) for position, entry in enumerate(pool.queue, start=1)),
            pool.settings,
            pool.next_grant_in_seconds,
            pool.default_grace_seconds,
        )

    def _resource(self, resource: Resource) -> ShownResource:
        lease = None if resource.lease is None else self._lease(resource, resource.lease)
        use = last_use(self._uses, resource.claim_key, resource.name) if self._uses else None
        in_use = use is not None and use.until is None
        if resource.member is None and resource.note is None:  # which is so of most
            return ShownResource(resource.name, lease, in_use=in_use)
        return ShownResource(
            resource.name,
            lease,
            membership_of(resource),
            () if resource.member is None else resource.member.properties,
            None if resource.note is None else _mark(resource.note),
            in_use,
        )

    def _lease(self, resource: Resource, lease: Lease) -> ShownLease:
        handle = self._handles.get(resource.claim_key or "")
        lease = lease._replace(labels=without_keys(lease.labels))
        if resource.ended is not None:
            return self._ended(resource, lease, handle)
        if handle is not None:
            return self._with_record(resource, lease, handle)
        if self._shared:
            shown = _without_record(resource, lease)
            return shown._replace(release_time=self._promised_release(resource, lease))
        return _unguarded(resource, lease)

    def _ended(self, resource: Resource, lease: Lease, handle: Handle | None) -> ShownLease:
        """A lease that was ended by force, which isn't renewed any more."""
        guard: GuardPlace = "unknown" if self._shared else "none"
        shown = _without_record(resource, lease)
        if handle is not None:
            shown = self._with_record(resource, lease, handle)
            guard = _place_of_guard(handle)
        renewer = _nobody(lease)
        return shown._replace(guard=guard, release_time=None, renewed_by=renewer, unconfirmed=False)

    def _with_record(self, resource: Resource, lease: Lease, handle: Handle) -> ShownLease:
        process = handle.runner or handle.guard
        due = earliest(handle.release_at, self._releases.get((handle.id, resource.name)))
        return ShownLease(
            lease,
            parse_holder(lease.holder_identity),
            unconfirmed=handle.served and handle.unconfirmed,
            guard=_place_of_guard(handle),
            guard_pid=handle.guard.pid if handle.guard else None,
            pid=process.pid if process else None,
            release_time=None if due is None else self._wall(due),
            expires_in_seconds=resource.expires_in_seconds,
            renewed_by=_renewer(handle),
            ended=resource.ended,
        )

    def _wall(self, elapsed: float) -> float:
        return self._clock.wall() + elapsed - self._clock.elapsed()

    def _promised_release(self, resource: Resource, lease: Lease) -> float | None:
        """When a lease of another state directory was to be released, as it was asked for.

        It may have been put off since, so it isn't believed once it is over.
        """
        after = resource.release_after_seconds
        due = None if after is None else lease.acquire_time + after
        return due if due is not None and due > self._clock.wall() else None


def membership_of(resource: Resource) -> ShownMembership:
    """What is so of a resource in its pool, as a store tells it."""
    member = resource.member
    if member is None:
        return NOTHING_SAID
    lifetime = member.lifetime
    process = None if lifetime is None else lifetime.process
    return ShownMembership(
        cordoned=member.cordoned,
        moves_to=member.moves_to,
        leaves=member.leaves,
        expected=member.expected,
        by_default=member.by_default,
        held_back_seconds=resource.held_back_seconds,
        ttl_seconds=None if lifetime is None else lifetime.ttl_seconds,
        leaves_in_seconds=resource.leaves_in_seconds,
        pid=None if process is None else process.pid,
        cordon=member.cordon,
    )


def _without_record(resource: Resource, lease: Lease) -> ShownLease:
    return ShownLease(
        lease,
        parse_holder(lease.holder_identity),
        pid=resource.holder_pid,
        expires_in_seconds=resource.expires_in_seconds,
        ended=resource.ended,
    )


def _unguarded(resource: Resource, lease: Lease) -> ShownLease:
    """What nearly all are here, and there may be thousands: so by the places of the parts."""
    holder, expires_in = parse_holder(lease.holder_identity), resource.expires_in_seconds
    return ShownLease(lease, holder, False, "none", None, None, None, expires_in, _nobody(lease))


def _mark(note: str) -> ShownMark | None:
    mark = parse_mark(note)
    return None if mark is None else ShownMark(mark.state, mark.asked_by)


def _place_of_guard(handle: Handle) -> GuardPlace:
    if handle.guard is None:
        return "unknown" if is_on_record_elsewhere(handle) else "none"
    return "here" if handle.guard.pid_namespace == own_pid_namespace() else "elsewhere"


def _renewer(handle: Handle) -> Renewer | None:
    if handle.request.ttl_seconds is None:
        # A client of the lease proxy's protocol renews nothing, and may be gone.
        return "nobody" if handle.served and handle.guard is None else None
    if is_of_extension(handle):
        return None  # by itself, as long as it is there
    if not renews_itself(handle):
        return "nobody"
    return "keeper" if handle.runner is None or is_dead(handle.runner) else "run"


def _nobody(lease: Lease) -> Renewer | None:
    return None if lease.lease_duration_seconds is None else "nobody"


def _waiter(position: int, entry: QueueEntry) -> ShownWaiter:
    return ShownWaiter(
        position=position,
        ticket=entry.ticket,
        holder=parse_holder(entry.holder_identity),
        count=entry.count,
        name=entry.name,
        since=entry.since,
        pid=entry.pid,
        labels=without_keys(entry.labels),
        suspended=entry.suspended,
        priority=entry.priority,
        effective_priority=entry.effective_priority,
        where=entry.where,
    )
