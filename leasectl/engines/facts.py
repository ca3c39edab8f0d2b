"""What an engine tells about its pools.

Apart from `leasectl.model`, because plain commands get by without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasectl.model import Labels, Lease, Where

if TYPE_CHECKING:
    from leasectl.engines.rules.membership import Member


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
        suspended: Those behind it may pass: it could have claimed and its process didn't come, what
            is in the pool can't meet it now, or it waits for another pool, which it needs, too.
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
        lease: None if it is free.
        claim_key: Of the lease, see `claim_key_of`; None if it is free.
        expires_in_seconds: When the lease expires unless it is renewed, by the clock of the store;
            None for never.
        holder_pid: As the claimant said; None if it didn't, and on the embedded pool, whose records
            say more.
        release_after_seconds: Of the request; None as for `holder_pid`.
        ended: Who has ended the lease by force and why, while it is kept for its holder, who has
            been told; None for a valid lease.
        member: The facts about its name; None if it is only in the pool.
        note: The note at the lease; None for none.
        held_back_seconds: It came here by default, and isn't granted for so much longer; None if it
            may be granted, and if that wasn't asked.
        leaves_in_seconds: When its membership ends by its ttl; None without one, and if that wasn't
            asked.
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
    """The state of a pool for one waiter.

    Args:
        position: Of the ticket; 1 if no better ticket waits for what it could use. Suspended
            tickets aren't counted.
        others: Tickets in the queue beside that one.
        held: Resources held.
        capacity: All resources.
        longest_holder: The holder of the oldest lease, or None.
        longest_since: When that was acquired, wall clock, in seconds; 0 for none.
        next_grant_at: When the pool's pace allows the next grant, on the elapsed clock; None if it
            does so now, and if that isn't known.
        pace_seconds: Of the pool; 0 for none, and if it isn't known.
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
    """A pool at one instant.

    Args:
        type: Its type.
        resources: All of them, by name.
        queue: The waiters, in the order in which they will be served.
        settings: How it grants.
        next_grant_in_seconds: When its pace allows the next grant; 0 for now.
        default_grace_seconds: For the default pool, how long it holds new names back; else None.
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
        """How many resources are free and can't be leased, as far as that was asked."""
        return sum(resource.is_closed for resource in self.resources)

    @property
    def free(self) -> int:
        """How many resources can be leased, as far as that was asked."""
        return self.capacity - self.held - self.unavailable
