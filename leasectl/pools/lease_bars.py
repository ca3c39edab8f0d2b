"""Leases over time: a bar for each, with the wait before it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leasectl.errors import NotFound
from leasectl.leases.service import Service
from leasectl.model import Lease
from leasectl.pools.overview import parse_holder
from leasectl.state.event import Event, EventFilter
from leasectl.text.naming import build_url_in, http_url


class LeaseBar(NamedTuple):
    """One lease. Times are wall clock, seconds since the epoch.

    Args:
        name: The resource.
        begin: When it was granted.
        end: When it ended; infinite for one that is held.
        queued: When its request was made.
        holder_identity: Whose it was.
        url: The address of its job's build; empty for none.
    """

    name: str
    begin: float
    end: float
    queued: float
    holder_identity: str
    url: str = ""

    @property
    def who(self) -> str:
        """The job, or the user outside a job."""
        return parse_holder(self.holder_identity).name


class LeaseBars:
    """The leases of one pool, put together from its events."""

    def __init__(self) -> None:
        self._ended: list[LeaseBar] = []
        self._held: dict[str, LeaseBar] = {}

    def add(self, event: Event) -> None:
        """Add what happened next."""
        if event.kind in ("granted", "released", "not released"):
            for name in event.names:
                self._end(name, event.time)
        elif event.kind in ("pool made", "pool deleted"):
            for name in list(self._held):
                self._end(name, event.time)
        if event.kind == "granted":
            queued = event.time - max(0.0, event.wait_seconds or 0.0)
            for name in event.names:
                self._held[name] = LeaseBar(
                    name,
                    event.time,
                    math.inf,
                    queued,
                    event.holder_identity,
                    http_url(event.build_url),
                )

    def settle(self, leases: Iterable[Lease]) -> None:
        """Believe the pool about what is held now, where the events say something else."""
        known, self._held = self._held, {}
        for lease in leases:
            bar = known.get(lease.name)
            if bar is None or bar.holder_identity != lease.holder_identity:
                at, url = lease.acquire_time, build_url_in(lease.labels)
                bar = LeaseBar(lease.name, at, math.inf, at, lease.holder_identity, url)
            self._held[lease.name] = bar

    def within(self, since: float, until: float) -> Sequence[LeaseBar]:
        """Return the leases whose hold or wait overlaps a stretch of time, oldest first."""
        every = (*self._ended, *self._held.values())
        found = [each for each in every if each.end > since and each.queued < until]
        return sorted(found, key=lambda each: (each.begin, each.name))

    def _end(self, name: str, at: float) -> None:
        bar = self._held.pop(name, None)
        if bar is not None:
            self._ended.append(bar._replace(end=max(at, bar.begin)))


def lease_bars(service: Service, pool_type: str, since: float, until: float) -> Sequence[LeaseBar]:
    """Return the leases of a pool in a stretch of time, the oldest first.

    Args:
        service: On the pool's backend.
        pool_type: The pool.
        since: When the stretch begins, wall clock.
        until: When it ends.
    """
    found = LeaseBars()
    for event in service.events.read(EventFilter(type=pool_type)):
        found.add(event)
    if service.kind.has_pools:
        with contextlib.suppress(NotFound):
            (pool,) = service.pools.pools(pool_type)
            found.settle(each.lease for each in pool.resources if each.lease)
    return found.within(since, until)
