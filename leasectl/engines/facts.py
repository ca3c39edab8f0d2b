"""What an engine tells about its pools.

Apart from `leasectl.model`, because plain commands get by without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasectl.model import Labels, Lease, Where

if TYPE_CHECKING:
    from leasectl.engines.membership import Member


class PoolSettings(NamedTuple):
    """How a pool grants.

    Args:
        pace_seconds: Over any time T it grants at most ``burst + T / pace_seconds`` acquisitions,
            whatever their counts; 0 for no pace.
        burst: So many may come at once.
        aging_seconds: For each such time that it has waited a ticket counts as one priority
            higher; 0 for none.
    """

    pace_seconds: float = 0.0
    burst: int = 1
    aging_seconds: float = 0.0


NO_SETTINGS = PoolSettings()


class QueueEntry(NamedTuple):
    """A place in a queue, as every store of pools can tell of it.

    Args:
        ticket: Its number.
        holder_identity: Who waits.
        count: For how many resources.
        since: When the ticket was put, wall clock, seconds since the epoch.
        claim_key: Of the claimant.
        pid: The process that waits; None if it isn't known.
        name: The one resource that will do; None for any.
        labels: Of the request.
        suspended: It could have claimed and its process didn't come, or what is in the pool can't
            meet it now: those behind it may pass.
        priority: As asked for.
        effective_priority: With what it has gained by waiting.
        where: What has to be so of each resource.
    """

    ticket: int
    holder_identity: str
    count: int  # type: ignore[assignment]  # as in Request
    since: float
    claim_key: str
    pid: int | None = None
    name: str | None = None
    labels: Labels = ()
    suspended: bool = False
    priority: int = 0
    effective_priority: int = 0
    where: Where = ()


class Resource(NamedTuple):
    """A member of a pool.

    Args:
        name: Its name.
        lease: None when it is free.
        claim_key: Whose the lease is, as `claim_key_of` has it; None when it is free.
        expires_in_seconds: When the lease runs out unless it is renewed, by the clock of the store;
            None for never, and where that wasn't asked.
        holder_pid: As the claimant said; None where it didn't, and on the embedded pool, whose
            records say more.
        release_after_seconds: Of the request; None likewise.
        ended: Who has ended the lease by force and why, while it is kept for its holder, who has
            been told; None for a lease that is good.
        member: What is so of its name; None where that is nothing but that it is in the pool.
        note: What others have noted at the lease; None for nothing.
        held_back_seconds: It came here by default, and for so long yet nobody gets it; None where
            somebody may, and where that wasn't asked.
        leaves_in_seconds: When it has been in the pool for as long as its ttl says; None where it
            has none, and where that wasn't asked.
    """

    name: str
    lease: Lease | None = None
    claim_key: str | None = None
    expires_in_seconds: float | None = None
    holder_pid: int | None = None
    release_after_seconds: float | None = None
    ended: str | None = None
    member: Member | None = None
    note: str | None = None
    held_back_seconds: float | None = None
    leaves_in_seconds: float | None = None

    @property
    def is_closed(self) -> bool:
        """Return whether it has no holder, but isn't granted."""
        takes_holders = self.member is None or self.member.takes_holders
        return self.lease is None and (self.held_back_seconds is not None or not takes_holders)


class Standing(NamedTuple):
    """How things stand in a pool for who waits in it.

    Args:
        position: Of the ticket; 1 when nobody better waits for what it could use. The suspended
            aren't counted.
        others: Tickets in the queue beside that one.
        held: Resources held.
        capacity: Resources there are.
        longest_holder: Who has held for longest, or None.
        longest_since: When that was acquired, wall clock, in seconds; 0 for nobody.
        next_grant_at: When the pool's pace allows the next grant, on the elapsed clock; None when
            it does so now, and where that can't be told.
        pace_seconds: Of the pool; 0 for none, and where that isn't told.
    """

    position: int
    others: int
    held: int
    capacity: int
    longest_holder: str | None = None
    longest_since: float = 0.0
    next_grant_at: float | None = None
    pace_seconds: float = 0.0


class Pool(NamedTuple):
    """A pool as it is at one instant.

    Args:
        type: Its type.
        resources: All of them, by name.
        queue: Who waits, in the order in which they will be served.
        settings: How it grants.
        next_grant_in_seconds: When its pace allows the next grant; 0 for now.
        default_grace_seconds: It takes what nobody else claims, and holds that back for so long;
            None for any but the default pool.
    """

    type: str
    resources: tuple[Resource, ...]
    queue: tuple[QueueEntry, ...]
    settings: PoolSettings = NO_SETTINGS
    next_grant_in_seconds: float = 0.0
    default_grace_seconds: float | None = None

    @property
    def capacity(self) -> int:
        return len(self.resources)

    @property
    def held(self) -> int:
        return sum(resource.lease is not None for resource in self.resources)

    @property
    def unavailable(self) -> int:
        """How many are free and nobody gets them, as far as that was asked."""
        return sum(resource.is_closed for resource in self.resources)

    @property
    def free(self) -> int:
        """How many somebody may get, likewise."""
        return self.capacity - self.held - self.unavailable
