"""The view model of pools: their resources, holders and queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.model import Labels, Lease, Where
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given, key_and_inputs_in
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.engines.rules.membership import Cordon, Properties
    from leasectl.leases.marks import MarkState


GuardPlace = Literal["here", "elsewhere", "none", "unknown"]
Renewer = Literal["keeper", "run", "nobody"]


class Holder(NamedTuple):
    """The identity of a holder or waiter, in its parts.

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

    @property
    def name(self) -> str:
        """The job, or the user outside a job."""
        return self.job or self.owner or as_given(self.identity)

    def has(self, text: str) -> bool:
        """Return whether a text is in the identity, as it is or as it was given, in any case."""
        wanted = text.casefold()
        return any(wanted in e.casefold() for e in (self.identity, as_given(self.identity)))


def parse_holder(identity: str) -> Holder:
    """Split an identity into its parts, as they were given; a foreign one leaves some empty."""
    owner, _, handle = identity.rpartition("/")
    owner, _, host = owner.rpartition("/")
    job, slash, build = owner.rpartition("/")
    if not slash:
        return Holder(identity, as_given(owner), None, None, as_given(host), handle)
    job, build = as_given(job), as_given(build)
    return Holder(identity, f"{job}/{build}", job, build, as_given(host), handle)


class ShownLease(NamedTuple):
    """A lease and the facts about its holder. Wall clock is in seconds since the epoch.

    Args:
        lease: As the store has it.
        holder: Its holder.
        unconfirmed: `leasectl serve` has granted it and doesn't know whether its client knows.
        guard: Where the process is whose end releases it: ``here``, ``elsewhere`` in another pid
            namespace, ``none``; ``unknown`` if another state directory has the record.
        guard_pid: Of that process; None without one, and if it is unknown.
        pid: Of the `run` that holds it, else of its guard; None if neither is known.
        release_time: When it will be released, wall clock; None for never or unknown.
        expires_in_seconds: When it expires unless it is renewed; None for never.
        renewed_by: What renews it; None if it doesn't expire, and if that is unknown.
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


class ShownMembership(NamedTuple):
    """The facts about a resource's name in its pool.

    Args:
        cordoned: It takes no new holder.
        moves_to: The pool that it moves to with its release; None if it stays.
        leaves: It leaves its pool with its release.
        expected: Its expected pool; None for none.
        by_default: It is here only because no other pool expects it.
        held_back_seconds: How much longer it isn't granted, as a pool may still claim it; else
            None.
        ttl_seconds: How long it stays after it has joined; None for a membership without a ttl.
        leaves_in_seconds: How much of that is left; None without a ttl, and if it isn't known.
        pid: Of the process with which it leaves; None for none.
        cordon: Who cordoned it, when and why; None if that isn't known.
    """

    cordoned: bool = False
    moves_to: str | None = None
    leaves: bool = False
    expected: str | None = None
    by_default: bool = False
    held_back_seconds: float | None = None
    ttl_seconds: float | None = None
    leaves_in_seconds: float | None = None
    pid: int | None = None
    cordon: Cordon | None = None

    @property
    def takes_holders(self) -> bool:
        """Return whether it can be granted when it is free."""
        closed = self.cordoned or self.moves_to is not None or self.leaves
        return not closed and self.held_back_seconds is None


NOTHING_SAID = ShownMembership()


class ShownMark(NamedTuple):
    """A reclaim's mark at a lease.

    Args:
        state: ``marked`` until its holder has answered, then ``ready`` or ``keep``.
        asked_by: Who wants it back.
    """

    state: MarkState
    asked_by: str


class ShownResource(NamedTuple):
    """A resource of a pool; without a lease it is free.

    Args:
        name: Its name.
        lease: Its lease; None if it is free.
        membership: The facts about it in its pool.
        properties: Its properties, sorted by key.
        mark: The mark at its lease; None for none.
        in_use: Its holder, in the state directory that was asked, has marked it as in use.
    """

    name: str
    lease: ShownLease | None = None
    membership: ShownMembership = NOTHING_SAID
    properties: Properties = ()
    mark: ShownMark | None = None
    in_use: bool = False

    @property
    def is_unavailable(self) -> bool:
        """Return whether it has no holder, but isn't granted."""
        return self.lease is None and not self.membership.takes_holders


class ShownWaiter(NamedTuple):
    """A place in a pool's queue.

    Args:
        position: 1 at the head.
        ticket: Its number.
        holder: Who waits.
        count: For how many resources.
        name: The one resource that will do; None for any.
        since: Wall clock, seconds since the epoch.
        pid: The process that waits; None where it isn't known.
        labels: Of the request.
        suspended: It could have claimed and its process didn't come, or what is in the pool can't
            meet it now: those behind it may pass.
        priority: As asked for.
        effective_priority: With what it has gained by waiting.
        where: What has to be so of each resource.
    """

    position: int
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
    where: Where = ()


class ShownPool(NamedTuple):
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
    resources: tuple[ShownResource, ...]
    queue: tuple[ShownWaiter, ...]
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
        """How many have no holder, but aren't granted."""
        return sum(resource.is_unavailable for resource in self.resources)

    @property
    def free(self) -> int:
        """How many can be granted."""
        return self.capacity - self.held - self.unavailable


class Rows(NamedTuple):
    """Which rows of pools are listed; the counts of a pool are always of all.

    Args:
        held: Leases; without `waiting` no requests.
        waiting: Requests; without `held` no leases.
        holder: Those of a job, build or host with this in its name; empty for all.
    """

    held: bool = False
    waiting: bool = False
    holder: str = ""

    def resources(self, pool: ShownPool) -> tuple[ShownResource, ...]:
        """The resources of a pool that are listed."""
        if self == ALL_ROWS:
            return pool.resources
        if self.waiting and not self.held:
            return ()
        return tuple(
            each for each in pool.resources if each.lease and each.lease.holder.has(self.holder)
        )

    def queue(self, pool: ShownPool) -> tuple[ShownWaiter, ...]:
        """The requests in a pool's queue that are listed."""
        if self.held and not self.waiting:
            return ()
        return tuple(each for each in pool.queue if each.holder.has(self.holder))

    def has_any(self, pool: ShownPool) -> bool:
        """Tell whether a pool is listed at all."""
        return self == ALL_ROWS or bool(self.resources(pool) or self.queue(pool))


ALL_ROWS = Rows()


class Overview(NamedTuple):
    """Pools at one instant.

    Args:
        backend: The URL that they were asked of.
        at: When that was, wall clock, seconds since the epoch.
        pools: As they were.
        works: Those under which work is done once, while it is.
        rows: What is listed of them.
    """

    backend: str
    at: float
    pools: tuple[ShownPool, ...]
    works: tuple[ShownPool, ...] = ()
    rows: Rows = ALL_ROWS

    def listing(self, rows: Rows) -> Overview:
        """The same with the rows that are wanted, and without pools that have none of them."""
        return self._replace(
            pools=tuple(filter(rows.has_any, self.pools)),
            works=tuple(filter(rows.has_any, self.works)),
            rows=rows,
        )

    def timeless(self) -> Overview:
        """The same without what changes only because time passes."""
        return self._replace(
            at=0.0,
            pools=tuple(map(timeless, self.pools)),
            works=tuple(map(timeless, self.works)),
        )


def timeless(pool: ShownPool) -> ShownPool:
    """The pool without what changes only because time passes."""
    return pool._replace(
        next_grant_in_seconds=0.0,
        resources=tuple(map(_timeless_resource, pool.resources)),
    )


def _timeless_resource(resource: ShownResource) -> ShownResource:
    lease, membership = resource.lease, resource.membership
    held_back = None if membership.held_back_seconds is None else 0.0
    return resource._replace(
        lease=None if lease is None else _timeless_lease(lease),
        membership=membership._replace(held_back_seconds=held_back, leaves_in_seconds=None),
    )


def _timeless_lease(shown: ShownLease) -> ShownLease:
    release_time = shown.release_time
    return shown._replace(
        expires_in_seconds=None,
        # It is found by two clocks that aren't read at once.
        release_time=None if release_time is None else round(release_time),
        lease=shown.lease._replace(renew_time=0.0),
    )


def work_of_pool(pool: ShownPool) -> tuple[str, str]:
    """Return the key and the shortened inputs of the work that a pool was made for.

    Both are empty if no holder and no waiter tells them.
    """
    labels = [each.lease.lease.labels for each in pool.resources if each.lease is not None]
    labels += [each.labels for each in pool.queue]
    return next((found for found in map(key_and_inputs_in, labels) if found[0]), ("", ""))


CORDONED, HELD_BACK = "cordoned", "held back"


def why_unavailable(resource: ShownResource) -> str | None:
    """Why a resource without a holder isn't granted; None if it can be, or is held."""
    if not resource.is_unavailable:
        return None
    return HELD_BACK if resource.membership.held_back_seconds is not None else CORDONED


def what_is_noted(resource: ShownResource, *, full: bool) -> Iterator[str]:
    """What becomes of a resource, or of its lease, beside what times tell.

    Args:
        resource: The resource.
        full: With who asks, and what is left of a time as it was when it was asked.
    """
    membership = resource.membership
    if resource.in_use:
        yield "in use"
    if resource.mark is not None:
        yield _mark_text(resource.mark, full=full)
    why = [cordon_text(membership.cordon, full=full)] if membership.cordon else []
    if why_unavailable(resource) == CORDONED:
        yield from why
    elif membership.cordoned:
        yield ": ".join([CORDONED, *why])
    if membership.moves_to is not None:
        yield f"moves to {membership.moves_to}"
    if membership.leaves:
        yield "leaves"
    if membership.pid is not None:
        yield f"joined with pid {membership.pid}"
    elif membership.ttl_seconds is not None:
        yield _ttl_text(membership, membership.ttl_seconds, full=full)
    if membership.by_default:
        yield "by default"


def cordon_text(cordon: Cordon, *, full: bool) -> str:
    """Return the reason of a cordon, who cordoned, and since when."""
    name = as_given(cordon.by) if full else parse_holder(f"{cordon.by}/").name
    since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(cordon.at))
    by = f"by {printable(name, longest=200)} since {since}"
    return f"{printable(cordon.reason, longest=500)}, {by}" if cordon.reason else by


def _mark_text(mark: ShownMark, *, full: bool) -> str:
    by = f" by {printable(mark.asked_by, longest=200)}" if full else ""
    if mark.state == "marked":
        return f"asked back{by}"
    return f"asked back{by}: {'ready' if mark.state == 'ready' else 'kept'}"


def _ttl_text(membership: ShownMembership, ttl_seconds: float, *, full: bool) -> str:
    said = f"joined, ttl {format_duration(ttl_seconds)}"
    if not full or membership.leaves_in_seconds is None:
        return said
    return f"{said}: {format_duration(max(0.0, membership.leaves_in_seconds))} left"


def by_number(name: str) -> tuple[str, int, str]:
    """Order names as people count: ``--9`` before ``--10``."""
    stem, dashes, number = name.rpartition("--")
    return (stem, int(number), name) if dashes and number.isdecimal() else (name, -1, name)
