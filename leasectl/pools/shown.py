"""Pools as they are shown: who holds what, who waits for what; all that is known of it.

These are the facts that a table shows and that JSON holds (`shown_json`), wherever they come from:
`showing` has them of a store of pools and of the records of this state directory.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.model import Labels, Lease

GuardPlace = Literal["here", "elsewhere", "none", "unknown"]
Renewer = Literal["keeper", "run", "nobody"]


class Holder(NamedTuple):
    """Who holds or waits, taken apart: what tells one from another.

    Args:
        identity: The whole, ``<owner>/<host>/<handle>``.
        owner: ``<job>/<build>``, or ``<user>@<host>`` outside a job.
        job: None outside a job.
        build: None outside a job.
        host: The name of the machine or pod.
        handle: The handle's id.
    """

    identity: str
    owner: str
    job: str | None
    build: str | None
    host: str
    handle: str


def parse_holder(identity: str) -> Holder:
    """Take a holder's identity apart; of what nobody of ours has written, the rest is empty."""
    owner, _, handle = identity.rpartition("/")
    owner, _, host = owner.rpartition("/")
    job, slash, build = owner.rpartition("/")
    if not slash:
        return Holder(identity, owner, None, None, host, handle)
    return Holder(identity, owner, job, build, host, handle)


class ShownLease(NamedTuple):
    """A lease and what is known of whoever holds it. Wall clock is in seconds since the epoch.

    Args:
        lease: As the store has it.
        holder: Whose it is.
        unconfirmed: `leasectl serve` has granted it and doesn't know that its client heard of it.
        guard: Where the process is whose end releases it: ``here``, ``elsewhere`` in another pid
            namespace, ``none``; ``unknown`` where another state directory has the record.
        guard_pid: Of that process; None without one, and where it is unknown.
        pid: Of the `run` that holds it, else of its guard; None where neither is known.
        release_time: When it is going to be released, wall clock; None for never or unknown.
        expires_in_seconds: When it runs out unless it is renewed; None for never.
        renewed_by: Who renews it; None where it doesn't run out, and where that is unknown.
        ended: Who has released it by force and why, while it is kept for its holder; else None.
    """

    lease: Lease
    holder: Holder
    unconfirmed: bool = False
    guard: GuardPlace = "unknown"
    guard_pid: int | None = None
    pid: int | None = None
    release_time: float | None = None
    expires_in_seconds: float | None = None
    renewed_by: Renewer | None = None
    ended: str | None = None


class ShownResource(NamedTuple):
    """A resource of a pool; without a lease it is free."""

    name: str
    lease: ShownLease | None = None


class ShownWaiter(NamedTuple):
    """A place in a pool's queue.

    Args:
        place: 1 at the head.
        ticket: Its number.
        holder: Who waits.
        count: For how many resources.
        name: The one resource that will do; None for any.
        since: Wall clock, seconds since the epoch.
        pid: The process that waits; None where it isn't known.
        labels: Of the request.
        suspended: It could have claimed and its process didn't come: those behind it may pass.
        priority: As asked for.
        effective_priority: With what it has gained by waiting.
    """

    place: int
    ticket: int
    holder: Holder
    count: int  # type: ignore[assignment]  # as in Request
    name: str | None
    since: float
    pid: int | None = None
    labels: Labels = ()
    suspended: bool = False
    priority: int = 0
    effective_priority: int = 0


class ShownPool(NamedTuple):
    """A pool as it is at one instant.

    Args:
        type: Its type.
        resources: All of them, by name.
        queue: Who waits, in the order in which they will be served.
        settings: How it grants.
        next_grant_in_seconds: When its pace allows the next grant; 0 for now.
    """

    type: str
    resources: tuple[ShownResource, ...]
    queue: tuple[ShownWaiter, ...]
    settings: PoolSettings = NO_SETTINGS
    next_grant_in_seconds: float = 0.0

    @property
    def capacity(self) -> int:
        return len(self.resources)

    @property
    def held(self) -> int:
        return sum(resource.lease is not None for resource in self.resources)


class Overview(NamedTuple):
    """Pools at one instant.

    Args:
        backend: The URL that they were asked of.
        at: When that was, wall clock, seconds since the epoch.
        pools: As they were.
    """

    backend: str
    at: float
    pools: tuple[ShownPool, ...]

    def changed_since(self, before: Overview) -> bool:
        """Tell whether anything is otherwise than it was, but that time has passed."""
        return self._timeless() != before._timeless()

    def _timeless(self) -> Overview:
        return self._replace(at=0.0, pools=tuple(map(timeless, self.pools)))


def timeless(pool: ShownPool) -> ShownPool:
    """The pool without what changes only because time passes."""
    return pool._replace(
        next_grant_in_seconds=0.0,
        resources=tuple(
            each if each.lease is None else each._replace(lease=_timeless_lease(each.lease))
            for each in pool.resources
        ),
    )


def _timeless_lease(shown: ShownLease) -> ShownLease:
    release_time = shown.release_time
    return shown._replace(
        expires_in_seconds=None,
        # It is found by two clocks that aren't read at once.
        release_time=None if release_time is None else round(release_time),
        lease=shown.lease._replace(renew_time=0.0),
    )
