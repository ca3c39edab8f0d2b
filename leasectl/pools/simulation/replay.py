"""Read jobs from a pool's events.

A job arrives when its ticket was put, since tickets make the order, and holds as long as its leases
were held. What is missing is made up. A job that still holds or waits at the end of the record, or
that gave up, holds as long as others did. A job that held before the record begins arrives when it
was granted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leasectl.engines.rules.events import is_got_instead
from leasectl.errors import NotFound
from leasectl.pools.simulation.jobs import Job
from leasectl.pools.timeline import Timeline
from leasectl.state.event import Event, waiter_of
from leasectl.text.naming import next_names

_CHANGES = ("pool made", "pool changed", "pool deleted")


class Recorded(NamedTuple):
    """A pool's events, as jobs for a simulation.

    Args:
        type: Its type.
        jobs: In the order of their requests; their time 0 is the first event's.
        granted_at: When each was granted, in the jobs' time; None for never.
        names: The resources that there were in the end, or those that were granted, if there is no
            event of the pool's creation.
        epoch: When the jobs' time 0 was, wall clock, seconds since the epoch.
        events: Those that were read, of that pool.
    """

    type: str
    jobs: tuple[Job, ...]
    granted_at: tuple[float | None, ...]
    names: tuple[str, ...]
    epoch: float
    events: tuple[Event, ...] = ()

    @property
    def tells_capacity(self) -> bool:
        """Whether anything tells of the pool's making: of a lease proxy's nothing does."""
        return any(event.kind in ("pool made", "pool changed") for event in self.events)

    @property
    def went_elsewhere(self) -> int:
        """How many asked for other types as well, and left when they got a lease of one."""
        return sum(e.kind == "gave up" and is_got_instead(e.reason) for e in self.events)

    @property
    def changes(self) -> int:
        """How often the pool was changed after the first job had come."""
        changed = [event for event in self.events if event.kind in _CHANGES]
        return sum(event.time > self.epoch for event in changed)

    def asked_by_other_names(self, names: Collection[str]) -> int:
        """How many asked for a resource by a name that isn't among some."""
        return sum(job.name is not None and job.name not in names for job in self.jobs)


@dataclass
class _Acquisition:
    """What was found out about one; times on the wall clock."""

    number: int  # of the first event of it, or its ticket
    asked_at: float
    count: int
    priority: int
    name: str | None
    granted_at: float | None = None
    gave_up_at: float | None = None
    held: dict[str, float] = field(default_factory=dict)  # since when, by name
    holds: list[float] = field(default_factory=list)


def recorded(events: Iterable[Event], pool_type: str | None = None) -> Recorded:
    """Read the events of one pool.

    Args:
        events: In their order; those of other pools don't count.
        pool_type: Of that pool; None for that of the first event.

    Raises:
        NotFound: There is no request in them.
    """
    record = _Record(pool_type)
    for event in events:
        record.add(event)
    return record.result()


def without_vain_jobs(recorded: Recorded, capacity: int) -> Recorded:
    """The same without jobs that got nothing and asked for more resources than there are.

    Raises:
        NotFound: There are no others.
    """
    kept = [
        (job, granted_at)
        for job, granted_at in zip(recorded.jobs, recorded.granted_at)
        if granted_at is not None or job.count <= capacity
    ]
    if not kept:
        raise NotFound(
            f'each request of pool "{recorded.type}" in these events asked for more than the '
            f"capacity of {capacity}: there is nothing to replay"
        )
    jobs, granted = zip(*kept)
    return recorded._replace(jobs=jobs, granted_at=granted)


class _Record:
    """The events that were read so far.

    Args:
        pool_type: Of which pool they are; None until the first has said so.
    """

    def __init__(self, pool_type: str | None) -> None:
        self._type = pool_type
        self._all: list[_Acquisition] = []
        self._current: dict[object, _Acquisition] = {}
        self._left: dict[tuple[str, int], _Acquisition] = {}
        self._holding: dict[str, _Acquisition] = {}
        self._names: dict[str, None] = {}
        self._granted_names: dict[str, None] = {}
        self._last = 0.0
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        """Take note of one more event."""
        self._type = self._type or event.type
        if event.type != self._type:
            return
        self._events.append(event)
        self._last = max(self._last, event.time)
        if event.kind == "queued":
            self._begin(event, event.time)
        elif event.kind == "granted":
            self._grant(event)
        elif event.kind == "released":
            self._end(event)
        elif event.kind == "gave up":
            left = self._left[waiter_of(event)] = self._known(event)
            left.gave_up_at = event.time
        elif event.kind in ("pool made", "pool changed"):
            for name in event.names:
                if self._names.pop(name, self) is self:
                    self._names[name] = None
        elif event.kind == "pool deleted":
            self._names.clear()

    def result(self) -> Recorded:
        """The jobs that they tell of.

        Raises:
            NotFound: There are none.
        """
        if not self._all or self._type is None:
            of = f' of pool "{self._type}"' if self._type else ""
            raise NotFound(f"no request{of} is in these events: there is nothing to replay")
        self._all.sort(key=lambda each: (each.asked_at, each.number))
        epoch = self._all[0].asked_at
        usual = _median([hold for each in self._all for hold in each.holds])
        jobs = [self._job(each, epoch, usual) for each in self._all]
        granted = [None if e.granted_at is None else e.granted_at - epoch for e in self._all]
        names, events = self._last_names(self._type), tuple(self._events)
        return Recorded(self._type, tuple(jobs), tuple(granted), names, epoch, events)

    def _last_names(self, pool_type: str) -> tuple[str, ...]:
        """The names that there were last; made-up ones where there were too many to be told."""
        timeline = Timeline()
        for event in self._events:
            timeline.add(event)
        capacities = [count for _, count in timeline.capacity_steps() if count]
        names = sorted(self._names or self._granted_names)
        missing = capacities[-1] - len(names) if capacities else 0
        return (*names, *(next_names(pool_type, missing, names) if missing > 0 else ()))

    def _begin(self, event: Event, asked_at: float) -> _Acquisition:
        before = self._left.pop(waiter_of(event), None)
        if event.kind == "queued" and before is not None:  # its server had ended
            before.gave_up_at = None
            self._current[_key(event)] = before
            return before
        name = event.names[0] if event.kind == "queued" and event.names else None
        found = _Acquisition(
            event.ticket or event.number, asked_at, event.count, event.priority, name
        )
        self._all.append(found)
        self._current[_key(event)] = found
        return found

    def _known(self, event: Event) -> _Acquisition:
        """The acquisition of an event; of one whose beginning was trimmed, all that is left."""
        found = self._current.get(_key(event))
        if found is None:
            found = self._begin(event, event.time - (event.wait_seconds or 0.0))
        return found

    def _grant(self, event: Event) -> None:
        found = self._known(event)
        found.granted_at = event.time
        found.count = len(event.names) or event.count
        for name in event.names:
            found.held[name] = event.time
            self._holding[name] = found
            self._granted_names[name] = None

    def _end(self, event: Event) -> None:
        for name in event.names:
            self._granted_names[name] = None
            found = self._holding.pop(name, None)
            if found is None:
                found = self._before_the_record(event)
            since = found.held.pop(name, event.time)
            held = event.time - since if event.hold_seconds is None else event.hold_seconds
            found.holds.append(max(0.0, held))

    def _before_the_record(self, event: Event) -> _Acquisition:
        found = self._current.get(_key(event))
        if found is None:
            found = self._begin(event, event.time - (event.hold_seconds or 0.0))
            found.granted_at, found.count = found.asked_at, 0
        found.count += 1
        return found

    def _job(self, found: _Acquisition, epoch: float, usual_hold: float) -> Job:
        holding = [max(usual_hold, self._last - since) for since in found.held.values()]
        holds = [*found.holds, *holding]
        if found.granted_at is None:
            holds = [usual_hold]  # it waits still, or might get something this time
        gives_up = found.granted_at is None and found.gave_up_at is not None
        waits = max(0.0, (found.gave_up_at or 0.0) - found.asked_at) if gives_up else None
        same = len(holds) != found.count or len(set(holds)) <= 1
        return Job(
            at=found.asked_at - epoch,
            holds=(max(holds, default=0.0),) if same else tuple(holds),
            count=max(1, found.count),
            priority=found.priority,
            name=found.name,
            wait_seconds=waits,
        )


def _median(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2] if seconds else 0.0


def _key(event: Event) -> object:
    return (event.handle, event.acquisition, event.ticket)
