"""How long a wait is likely to be: worked out by hand, and read of few events."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Callable

import pytest

from leasectl.engines.pool_admin import EventWatch
from leasectl.pools.expected_wait import Place, RecentHolds, expected_wait
from leasectl.pools.simulation.jobs import Job
from leasectl.pools.simulation.policies import parse_policy
from leasectl.pools.simulation.running import Simulated, run
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed
from tests.kit.support import ManualClock

HOLD = 1200.0


def test_the_first_gets_what_is_free_first() -> None:
    place = Place(position=1, count=1, capacity=3, held=3, ages_seconds=(100.0, 900.0, 500.0))
    assert expected_wait(place, [HOLD]) == 300.0


def test_each_place_further_back_is_one_end_later() -> None:
    ages = (100.0, 900.0, 500.0)
    waits = [
        expected_wait(Place(position, 1, 3, 3, ages_seconds=ages), [HOLD])
        for position in (1, 2, 3, 4, 7)
    ]
    assert waits == [300.0, 700.0, 1100.0, 300.0 + HOLD, 300.0 + 2 * HOLD]


def test_several_at_once_wait_for_the_last_of_them() -> None:
    ages = (100.0, 900.0, 500.0)
    assert expected_wait(Place(1, 2, 3, 3, ages_seconds=ages), [HOLD]) == 700.0
    assert expected_wait(Place(2, 1, 3, 3, ages_seconds=ages, counts_ahead=(2,)), [HOLD]) == 1100.0


def test_without_their_ages_holders_came_evenly() -> None:
    place = Place(position=2, count=1, capacity=4, held=4, longest_age_seconds=1000.0)
    assert expected_wait(place, [HOLD]) == HOLD - 750.0


def test_what_is_free_waits_for_the_pace_alone() -> None:
    place = Place(3, 1, 50, 2, 10.0, pace_seconds=20.0, next_grant_in_seconds=14.0)
    assert expected_wait(place, [HOLD]) == 54.0


def test_the_typical_hold_is_the_median() -> None:
    place = Place(position=2, count=1, capacity=1, held=0)
    assert expected_wait(place, [1.0, 10.0, 500.0]) == 10.0


def test_who_holds_for_longer_than_most_holds_on_as_the_few_did() -> None:
    place = Place(position=1, count=1, capacity=1, held=1, longest_age_seconds=20.0)
    assert expected_wait(place, [1.0, 10.0, 500.0]) == 480.0


@pytest.mark.parametrize(
    ("place", "holds"),
    [
        (Place(1, 1, 1, 1), []),
        (Place(1, 1, 1, 1, 1300.0), [HOLD]),  # longer than any
        (Place(1, 3, 2, 0), [HOLD]),
        (Place(1, 1, 0, 0), [HOLD]),
    ],
)
def test_nothing_is_said_where_nothing_is_known(place: Place, holds: list[float]) -> None:
    assert expected_wait(place, holds) is None


def test_one_that_is_held_for_ever_keeps_only_those_back_who_need_it() -> None:
    place = Place(1, 1, 2, 2, ages_seconds=(5000.0, 200.0))
    assert expected_wait(place, [HOLD]) == 1000.0
    assert expected_wait(place._replace(count=2), [HOLD]) is None


class CountedLog:
    """Some events, and how many were asked for."""

    remark = ""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.asked: list[int] = []

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        found = list(filter(wanted.wants, reversed(self.events)))[:number]
        self.asked.append(len(found))
        return found

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        raise NotImplementedError

    def last_number(self) -> int:
        raise NotImplementedError

    def watch(self) -> EventWatch:
        raise NotImplementedError


def ended(number: int, hold: float, pool_type: str = "T") -> Event:
    return Event(number, 0.0, "released", pool_type, ("n",), hold_seconds=hold)


def test_holds_are_of_the_last_ends_of_that_pool() -> None:
    others = [ended(n, 1.0, "other") for n in range(1, 500)]
    log = CountedLog([*others, *(ended(500 + n, float(n)) for n in range(900))])
    assert RecentHolds(log, "T").seconds() == tuple(float(n) for n in reversed(range(300, 900)))


def test_it_looks_at_most_each_ten_seconds() -> None:
    clock, log = ManualClock(), CountedLog([ended(1, 7.0)])
    holds = RecentHolds(log, "T", elapsed=clock.clock.elapsed)
    for _ in range(10):
        assert holds.seconds() == (7.0,)
        clock.advance(1.0)
    assert len(log.asked) == 1
    log.events.append(ended(2, 9.0))
    assert holds.seconds() == (9.0, 7.0)


def simulated(jobs: list[Job], capacity: int, policy: str) -> list[tuple[float, float]]:
    """For all who came when something was known: what they would have been told, and what was."""
    names = tuple(f"T--{n:02d}" for n in range(capacity))
    events = run(jobs, Simulated("T", names), parse_policy(policy)).events
    waited = {each.handle: each.wait_seconds or 0.0 for each in events if each.kind == "granted"}
    pace = parse_policy(policy).settings.pace_seconds
    queue: list[str] = []
    since: dict[str, float] = {}
    holds: list[float] = []
    allowed_at, found = 0.0, []
    for event in events:
        if event.kind == "queued":
            queue.append(event.handle)
            longest = event.time - min(since.values(), default=event.time)
            allowed_in = max(0.0, allowed_at - event.time)
            place = Place(
                len(queue), 1, capacity, len(since), longest, None, None, pace, allowed_in
            )
            likely = expected_wait(place, holds[-200:])
            if likely is not None:
                found.append((likely, waited[event.handle]))
        elif event.kind == "granted":
            queue.remove(event.handle)
            since[event.names[0]], allowed_at = event.time, event.time + pace
        elif event.kind == "released":
            del since[event.names[0]]
            holds.append(event.hold_seconds or 0.0)
    return found


@pytest.mark.once
@pytest.mark.parametrize(
    ("capacity", "policy", "spread", "at_most"),
    [
        (5, "none", 0.0, 0.05),
        (50, "pace=20s", 0.0, 0.05),
        (50, "none", 0.2, 0.2),
        (5, "none", 0.9, 0.25),
    ],
)
def test_it_is_about_right(capacity: int, policy: str, spread: float, at_most: float) -> None:
    chance, at, jobs = Random(1), 0.0, []
    for _ in range(400):  # a fifth more than it can take
        at += chance.expovariate(1.2 * capacity / HOLD)
        jobs.append(Job(at, (HOLD * (1 + spread * chance.uniform(-1, 1)),)))
    found = simulated(jobs, capacity, policy)
    assert len(found) > 200
    waited = sum(each for _, each in found)
    assert sum(abs(likely - each) for likely, each in found) <= at_most * waited
