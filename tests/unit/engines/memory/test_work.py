"""How much work the pool algorithm takes on the memory engine: as much a job, however many jobs.

Counted in the interpreter's instructions, so that no clock has a say.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from types import FrameType
from typing import Any, Callable

import pytest

from leasectl.backends.contract import Patience, Withdrawn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.memory.engine import MemoryEngine
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.sides import MemorySides
from leasectl.engines.memory.store import MemoryStore
from leasectl.errors import NoLease
from leasectl.model import Claimant, Request
from leasectl.pools.simulation.running import VirtualTime
from tests.kit.recorded import NoJournal

# It is counted, so it is the same on every Python.
pytestmark = pytest.mark.once

# What a heap or a bisection takes more, of four times as many.
SLIGHTLY_MORE = 1.25


class Jobs:
    """Jobs that acquire from a pool, hold for a while and give back.

    Args:
        capacity: Of the pool.
        settings: How it grants.
    """

    def __init__(self, capacity: int, settings: PoolSettings = NO_SETTINGS) -> None:
        self.time = VirtualTime()
        self.granted: list[str] = []
        self.lost: list[str] = []
        store = MemoryStore(clock=self.time.clock, lost=lambda key, _: self.lost.append(key))
        pools = MemoryPools(store)
        pools.create_pool("T", [f"T--{number}" for number in range(capacity)], settings=settings)
        engine = MemoryEngine(store, new_waker=self.time.new_waker)
        self.backend = PoolBackend("memory:", engine, MemorySides(store), clock=self.time.clock)

    def start(self, key: str, request: Request, *, hold: float, wait: float | None = None) -> None:
        journal = NoJournal()
        turn = self.backend.turn(Claimant(key, key, request), journal, Patience(wait_seconds=wait))

        def then() -> None:
            self.granted.append(key)
            names = [lease.name for lease in journal.leases or ()]
            self.time.after(hold, lambda: self.backend.release(key, names))

        self.time.begin(turn, then)


def all_at_once(jobs: int) -> None:
    """All ask for the few that there are."""
    world = Jobs(capacity=10)
    for number in range(jobs):
        world.start(f"job-{number}", Request("T"), hold=60)
    world.time.run()
    assert world.granted == [f"job-{number}" for number in range(jobs)]


def paced(jobs: int) -> None:
    """All ask at once, and there is enough, but not at once."""
    world = Jobs(capacity=jobs, settings=PoolSettings(pace_seconds=20, burst=2))
    for number in range(jobs):
        world.start(f"job-{number}", Request("T"), hold=60)
    world.time.run()
    assert world.granted == [f"job-{number}" for number in range(jobs)]
    assert world.time.clock.elapsed() == (jobs - 2) * 20 + 60


def by_priority(jobs: int) -> None:
    """All ask at once for the few that there are, some with more right than others."""
    world = Jobs(capacity=1)
    world.start("first", Request("T"), hold=60)
    for number in range(jobs):
        world.start(f"{number % 5}-{number:04d}", Request("T", priority=-(number % 5)), hold=60)
    world.time.run()
    assert world.granted == ["first", *sorted(world.granted[1:])]


def aging(jobs: int) -> None:
    """The same, but who has waited for long counts for more."""
    world = Jobs(capacity=1, settings=PoolSettings(aging_seconds=600))
    world.start("first", Request("T"), hold=60)
    for number in range(jobs):
        ask = Request("T", priority=-(number % 5))
        world.time.after(number, partial(world.start, f"{number}", ask, hold=60))
    world.time.run()
    assert len(world.granted) == 1 + jobs


def as_many_as_jobs(jobs: int) -> None:
    """Nobody has to wait."""
    world = Jobs(capacity=jobs)
    for number in range(jobs):
        world.start(f"job-{number}", Request("T"), hold=60)
    world.time.run()
    assert (len(world.granted), world.time.sleeps) == (jobs, 0)


def by_name(jobs: int) -> None:
    """Each asks for a resource of its own, and then for it again."""
    world = Jobs(capacity=jobs)
    for again in range(2):
        for number in range(jobs):
            world.start(f"job-{number}-{again}", Request("T", name=f"T--{number}"), hold=60)
        world.time.run()
    assert len(world.granted) == 2 * jobs


def expiring(jobs: int) -> None:
    """Nobody gives back in time, and only every other one has renewed."""
    world = Jobs(capacity=jobs)
    ask = Request("T", ttl_seconds=90)
    for number in range(jobs):
        world.start(f"job-{number}", ask, hold=120)
        if number % 2:
            world.time.after(60, partial(world.backend.renew, f"job-{number}", ()))
        else:
            world.time.after(100, partial(world.start, f"next-{number}", ask, hold=1))
    world.time.run()
    assert len(world.granted) == jobs + jobs // 2
    assert sorted(world.lost) == sorted(f"job-{number}" for number in range(0, jobs, 2))


def giving_up(jobs: int) -> None:
    """While one holds for long, some have no more time and others are withdrawn."""
    world = Jobs(capacity=1)
    world.start("holder", Request("T"), hold=1000)
    for number in range(jobs):
        waiter = f"job-{number}"
        if number % 2:
            world.start(waiter, Request("T"), hold=1, wait=10 + number * 37 % 101)
        else:
            world.start(waiter, Request("T"), hold=1)
            world.time.after(10 + number * 37 % 101, partial(world.backend.withdraw, waiter))
    world.time.run()
    assert world.granted == ["holder"]
    assert Counter(map(type, world.time.failures)) == {NoLease: jobs / 2, Withdrawn: jobs / 2}


def instructions(work: Callable[[], None]) -> int:
    """How many lines and instructions the interpreter carries out for some work."""
    done = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal done
        frame.f_trace_opcodes = True
        done += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return done


LOADS = (all_at_once, as_many_as_jobs, by_name, expiring, giving_up, paced, by_priority, aging)


@pytest.mark.parametrize("load", LOADS)
def test_four_times_the_jobs_are_four_times_the_work(load: Callable[[int], None]) -> None:
    instructions(lambda: load(10))  # Python 3.12 counts none where it traces for the first time
    few, many = (instructions(lambda: load(jobs)) for jobs in (100, 400))  # noqa: B023
    assert many < 4 * few * SLIGHTLY_MORE


def test_work_that_grows_faster_would_be_noticed() -> None:
    def each_looks_at_all(jobs: int) -> None:
        for _ in range(jobs):
            sum(1 for _ in range(jobs))

    few, many = (instructions(lambda: each_looks_at_all(jobs)) for jobs in (100, 400))  # noqa: B023
    assert many > 4 * few * SLIGHTLY_MORE
