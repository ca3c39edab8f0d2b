"""When each wait and hold began and ended."""

from __future__ import annotations

import contextlib
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from leasectl.engines.facts import Pool
from leasectl.engines.pool_admin import EventLog
from leasectl.engines.rules.events import gained, is_got_instead
from leasectl.errors import NotFound, StateUnwritable
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.state.event import Event, EventFilter, waiter_of
from leasectl.text.naming import is_reserved


class Present(NamedTuple):
    """How things stand in a pool now, for what its events don't say.

    Args:
        at: When this was; wall clock. The events have to be read afterwards.
        capacity: Resources there are.
        held: Since when each of them is held, wall clock, by name.
        waiting: Since when each ticket waits, wall clock, by number.
    """

    at: float
    capacity: int
    held: Mapping[str, float]
    waiting: Mapping[int, float]


def present_of(pool: Pool, at: float) -> Present:
    """The same, of what an engine told at a time."""
    held = {each.name: each.lease.acquire_time for each in pool.resources if each.lease}
    waiting = {each.ticket: each.since for each in pool.queue}
    return Present(at, pool.capacity, held, waiting)


class Intervals:
    """Many stretches of time, in little memory. All times are wall clock, in seconds."""

    def __init__(self) -> None:
        self.begins = array("d")
        self.ends = array("d")

    def add(self, begin: float, end: float) -> None:
        """Add one; a clock that went back makes it one of no length."""
        self.begins.append(begin if begin < end else end)
        self.ends.append(end)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.begins, self.ends)


class Timeline:
    """The history of one pool.

    Attributes:
        first: The earliest time of an event; None as long as there is none.
        last: The latest.
        grants: Time, wait in seconds and count of each grant, in their order.
        ended: When each lease ended, with its hold in seconds, one for each name.
        gave_up: When each request ended without a grant, and wasn't made again.
        lost: When a lease was lost, once for each name.
        taken_back: When a lease was taken back from a dead holder, once for each name.
        held: From when to when a resource was held, for each hold that has ended.
        waiting: From when to when a request waited, for each wait that has ended.
        arrival: When the first request was made; None for none.
        completion: When the last lease ended; None for none.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = 0.0
        self.grants = array("d")
        self.grant_waits = array("d")
        self.grant_counts = array("l")
        self.ended = array("d")
        self.holds = array("d")
        self.gave_up = array("d")
        self.lost = array("d")
        self.taken_back = array("d")
        self.held = Intervals()
        self.waiting = Intervals()
        self.arrival: float | None = None
        self.completion: float | None = None
        self._open_holds: dict[str, float] = {}
        self._open_waits: dict[tuple[str, int], tuple[int, float]] = {}
        # When a request that gave up had been made, and gave up: after a restart of a server its
        # clients ask again.
        self._left: dict[tuple[str, int], tuple[float, float]] = {}
        self._asked_at: dict[tuple[str, int], float] = {}  # of those that asked again
        # What was open when the pool was deleted: on a server some events of its end come later.
        self._gone: set[str | tuple[str, int]] = set()
        self._changes: list[Event] = []
        self._present: Present | None = None

    def add(self, event: Event) -> None:
        """Add what happened next."""
        if self.first is None or event.time < self.first:
            self.first = event.time
        self.last = max(self.last, event.time)
        if self._changes and event.time < self._changes[-1].time:
            self._put_right(event.time)
        kind = event.kind
        if kind == "queued":
            waiter = waiter_of(event)
            self._open_waits[waiter] = event.ticket, event.time
            self._arrive(event.time)
            if waiter in self._left:
                self._asked_at[waiter], gave_up_at = self._left.pop(waiter)
                self.gave_up.remove(gave_up_at)
        elif kind == "granted":
            self._grant(event)
        elif kind in ("released", "not released"):
            self._end(event)
        elif kind == "gave up":
            wait_seconds = self._end_wait(event)
            if not is_got_instead(event.reason):
                self.gave_up.append(event.time)
                self._left[waiter_of(event)] = event.time - wait_seconds, event.time
        elif kind == "lost":
            self.lost.extend([event.time] * max(1, len(event.names)))
        elif kind != "noted":
            self._changes.append(event)
            if kind in ("pool deleted", "pool made"):
                self._end_all(event.time)

    def settle(self, present: Present) -> None:
        """Believe the pool where its events don't say how things stand now.

        A log may have been trimmed, or begin with a later version of ours than some holders; and
        where it couldn't be written, it lacks ends.
        """
        self._present = present
        begin = present.at if self.first is None else self.first
        older = {name: since for name, since in present.held.items() if since < begin}
        known = {
            name: since
            for name, since in self._open_holds.items()
            if name in present.held or since >= present.at
        }
        self._open_holds = {**older, **known}
        older_waits = {
            ("", -ticket): (ticket, since)
            for ticket, since in present.waiting.items()
            if since < begin
        }
        known_waits = {
            waiter: (ticket, since)
            for waiter, (ticket, since) in self._open_waits.items()
            if ticket in present.waiting or since >= present.at
        }
        self._open_waits = {**older_waits, **known_waits}

    def held_until(self, until: float) -> Iterator[tuple[float, float]]:
        """Each hold, those that go on as well: up to ``until``."""
        yield from self.held
        yield from ((since, until) for since in self._open_holds.values() if since < until)

    def waiting_until(self, until: float) -> Iterator[tuple[float, float]]:
        """Each wait up to a time."""
        yield from self.waiting
        yield from ((since, until) for _, since in self._open_waits.values() if since < until)

    def capacity_steps(self) -> list[tuple[float, int]]:
        """From when on the pool had how many resources, as far as that is known; else nothing."""
        if self._present is not None:
            return _capacities(self._changes, self._present.capacity, self._present.at)
        if self._changes and self._changes[-1].kind == "pool deleted":
            return _capacities(self._changes, 0, math.inf)
        if self._changes and self._changes[0].kind == "pool made":
            return _capacities(self._changes, 0, -math.inf)
        return []

    def _put_right(self, at: float) -> None:
        """Correct the times of pool changes that are later than the events after them."""
        n = len(self._changes)
        while n and self._changes[n - 1].time > at:
            n -= 1
            self._changes[n] = self._changes[n]._replace(time=at)

    def _arrive(self, at: float) -> None:
        self.arrival = at if self.arrival is None else min(self.arrival, at)

    def _grant(self, event: Event) -> None:
        at = event.time
        wait_seconds = self._end_wait(event)
        self.grants.append(at)
        self.grant_waits.append(wait_seconds)
        self.grant_counts.append(len(event.names) or event.count)
        for name in event.names:
            since = self._open_holds.get(name)
            if since is not None:  # whatever ended that: one resource has one holder
                self.held.add(since, at)
            self._open_holds[name] = at
            self._gone.discard(name)

    def _end_wait(self, event: Event) -> float:
        """Record the end of a wait; return its seconds."""
        at, told = event.time, event.wait_seconds
        waiter = waiter_of(event)
        queued = self._open_waits.pop(waiter, None)
        begin = queued[1] if queued is not None else at - max(0.0, told or 0.0)
        if queued is not None or waiter not in self._gone:
            self.waiting.add(begin, at)
        self._arrive(min(begin, at))
        asked_at = self._asked_at.pop(waiter, None)
        if asked_at is not None:
            return max(0.0, at - asked_at)
        return max(0.0, at - begin if told is None else told)

    def _end_all(self, at: float) -> None:
        """End all holds and waits in a pool that was deleted or created."""
        for since in self._open_holds.values():
            self.held.add(since, at)
        for _, since in self._open_waits.values():
            self.waiting.add(since, at)
        self._gone = {*self._open_holds, *self._open_waits}
        self._open_holds, self._open_waits = {}, {}

    def _end(self, event: Event) -> None:
        at, told = event.time, event.hold_seconds
        for name in event.names:
            since = self._open_holds.pop(name, None)
            if since is None:
                since = at - max(0.0, told or 0.0)
            if name not in self._gone:
                self.held.add(since, at)
            self.ended.append(at)
            self.holds.append(max(0.0, at - since if told is None else told))
            if event.by == "guard":
                self.taken_back.append(at)
        self.completion = at if self.completion is None else max(self.completion, at)


def timelines(events: Iterable[Event]) -> dict[str, Timeline]:
    """Put together what happened in each pool, in one pass.

    Args:
        events: In the order of their log.

    Returns:
        By type.
    """
    found: dict[str, Timeline] = {}
    for event in events:
        if is_reserved(event.type):
            continue  # of work that is done once; its pools are no users' affair
        timeline = found.get(event.type)
        if timeline is None:
            timeline = found[event.type] = Timeline()
        timeline.add(event)
    return found


def _capacities(changes: Sequence[Event], there: int, at: float) -> list[tuple[float, int]]:
    """From when on there were how many, known how many there were at one time."""
    known = sum(change.time <= at for change in changes)
    before = there
    steps: list[tuple[float, int]] = []
    for change in reversed(changes[:known]):
        steps.append((change.time, before))
        if change.kind == "pool deleted":
            before = change.count
        else:
            before = 0 if change.kind == "pool made" else max(0, before - gained(change))
    steps.append((-math.inf, before))
    steps.reverse()
    after = there
    for change in changes[known:]:
        after = 0 if change.kind == "pool deleted" else max(0, after + gained(change))
        steps.append((change.time, after))
    return steps


def pool_histories(
    service: Service, pool_type: str | None = None, *, log: EventLog | None = None
) -> dict[str, Timeline]:
    """Return the histories of existing pools and of those that have events, by type.

    For a backend without pools of its own, they are those of this state directory's handles.

    Args:
        service: On their backend.
        pool_type: Only that pool.
        log: The backend's events, for callers that need its remark; None to open them here.

    Raises:
        NotFound: There is no such pool, and no event of one.
        NotSupported: The backend records no events.
    """
    with contextlib.suppress(StateUnwritable):  # a full disk: what is over goes on, then
        release_abandoned(service)
    at = service.clock.wall()
    pools: tuple[Pool, ...] = ()
    missing: NotFound | None = None
    if service.kind.has_pools:
        try:
            pools = service.pools.pools(pool_type)
        except NotFound as error:
            missing = error
    found = timelines((log or service.events).read(EventFilter(type=pool_type)))
    if missing and not found:
        raise missing
    for pool in pools:
        if is_reserved(pool.type):
            continue
        found.setdefault(pool.type, Timeline()).settle(present_of(pool, at))
    return found
