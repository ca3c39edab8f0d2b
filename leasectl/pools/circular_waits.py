"""Find requests that wait for each other's leases, so that none of them is ever granted.

A lease is *tied* to a waiting request if it isn't released before that request ends. That is
assumed in two cases, since a script may run the request in the background and go on:

- its guard, or the `run` that holds it, is an ancestor of the waiting process on this machine;
- both belong to the same CI job and build, and the request is for another pool.

A lease that isn't tied to a waiting request, or that has a release time or runs out, ends by
itself. A request can be granted if its pool has enough resources that are free or whose leases end
by themselves. Requests that can be granted are taken away, again and again. What remains waits in
circles, or behind one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from leasectl.pools.overview import Overview, ShownLease, ShownPool, ShownResource, ShownWaiter
from leasectl.system.callers import ancestors
from leasectl.text.wording import listed, printable


class CircularWait(NamedTuple):
    """A request in a circle of waits.

    Args:
        waiter: The identity of who waits.
        pool: The pool that the request is for.
        holders: Who holds resources of that pool and waits, in turn, for the waiter.
        holds: The resources that the waiter's job holds and others in the circle wait for.
        holds_as: The identities that hold them.
    """

    waiter: str
    pool: str
    holders: tuple[str, ...]
    holds: tuple[str, ...]
    holds_as: tuple[str, ...]

    def __str__(self) -> str:
        holders, holds_as = (
            listed([printable(each, longest=200) for each in identities])
            for identities in (self.holders, self.holds_as)
        )
        return (
            f"request {printable(self.waiter, longest=200)} waits for {self.pool}, held by "
            f"{holders}; its own job holds {listed(self.holds)} as {holds_as}"
        )


class _Request(NamedTuple):
    pool: ShownPool
    waiter: ShownWaiter
    ancestors: Collection[int]

    def ties(self, lease: ShownLease) -> bool:
        """Tell whether a lease isn't released before this request ends."""
        if lease.guard == "here" and lease.pid is not None and self.ancestors:
            return lease.pid in self.ancestors
        own, other = self.waiter.holder, lease.holder
        if own.job is None or (own.job, own.build) != (other.job, other.build):
            return False
        # Parts of a job that want resources of one pool wait for each other as others do.
        return all(each.lease is not lease for each in self.pool.resources)

    def wants(self, resource: ShownResource) -> bool:
        # Its --where isn't looked at: that only makes fewer circles be found.
        return self.waiter.name in (None, resource.name)


def circular_waits(overview: Overview) -> list[CircularWait]:
    """Return the requests that wait in a circle, in the order of their pools and queues."""
    requests = [
        _Request(pool, waiter, ancestors(waiter.pid) if waiter.pid else ())
        for pool in overview.pools
        for waiter in pool.queue
        if pool.free < waiter.count
    ]
    stuck = requests
    while True:
        left = [each for each in stuck if not _can_be_granted(each, stuck)]
        if len(left) == len(stuck):
            break
        stuck = left
    waits_for = {n: set(_blockers(each, stuck)) for n, each in enumerate(stuck)}
    return [
        CircularWait(
            each.waiter.holder.identity,
            each.pool.type,
            _holders(each, stuck),
            *_tied_to(each, stuck),
        )
        for n, each in enumerate(stuck)
        if n in _reached(n, waits_for)
    ]


def _can_be_granted(request: _Request, stuck: Sequence[_Request]) -> bool:
    usable = sum(
        not each.is_unavailable and (each.lease is None or not _is_tied(each.lease, stuck))
        for each in request.pool.resources
        if request.wants(each)
    )
    return usable >= request.waiter.count


def _is_tied(lease: ShownLease, stuck: Sequence[_Request]) -> bool:
    ends = lease.release_time is not None or lease.ended is not None
    runs_out = lease.renewed_by == "nobody"
    return not (ends or runs_out) and any(each.ties(lease) for each in stuck)


def _wanted_leases(request: _Request) -> Iterator[ShownLease]:
    for resource in request.pool.resources:
        if resource.lease is not None and request.wants(resource):
            yield resource.lease


def _blockers(request: _Request, stuck: Sequence[_Request]) -> Iterator[int]:
    leases = list(_wanted_leases(request))
    for n, other in enumerate(stuck):
        if any(other.ties(lease) for lease in leases):
            yield n


def _holders(request: _Request, stuck: Sequence[_Request]) -> tuple[str, ...]:
    found = [each.holder.identity for each in _wanted_leases(request) if _is_tied(each, stuck)]
    return tuple(dict.fromkeys(found))


def _tied_to(request: _Request, stuck: Sequence[_Request]) -> tuple[tuple[str, ...], ...]:
    """Return the resources that others wait for and a request's job holds, and their holders."""
    found = {
        resource.name: resource.lease.holder.identity
        for other in stuck
        for resource in other.pool.resources
        if resource.lease is not None and other.wants(resource) and request.ties(resource.lease)
    }
    return tuple(found), tuple(dict.fromkeys(found.values()))


def _reached(start: int, waits_for: Mapping[int, Collection[int]]) -> set[int]:
    reached: set[int] = set()
    todo = list(waits_for[start])
    while todo:
        each = todo.pop()
        if each not in reached:
            reached.add(each)
            todo += waits_for[each]
    return reached
