"""A random walk over two pools of a state directory and those who wait for one of them or either.

Nobody sleeps who could claim, or for whom it is over; they don't wake each other for ever; none
gets two grants for one request, or leaves a ticket or the use of a pace in the other pool. What
waits is the whole turn of an acquisition, in made-up time; LEASECTL_TEST_WALKS says how many walks
there are.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience, Turn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.queues import LocalQueues
from leasectl.errors import Interrupted, InvalidRequest, NoLease
from leasectl.model import Claimant, Request
from leasectl.state.directory import State
from leasectl.system.clock import earliest
from leasectl.system.poll import Sleep, is_readable
from leasectl.system.process import this_process
from tests.kit.pacing import too_fast
from tests.kit.recorded import NoJournal, record
from tests.kit.support import ManualClock

WALKS = int(os.environ.get("LEASECTL_TEST_WALKS", "4"))
STEPS = 120
OFTEN = 0.1
MOST_WAITING = 10
TYPES = ("A", "B")


class Waiting:
    """Who waits: the steps of its turn, and what it sleeps on."""

    def __init__(self, key: str, request: Request, turn: Turn, journal: NoJournal) -> None:
        self.key, self.request, self.turn, self.journal = key, request, turn, journal
        self.sleep = Sleep(frozenset(), None)
        self.woken: set[int] = set()


class Walk:
    """Two pools, those who wait for something, and those who hold something."""

    def __init__(self, state: State, time: ManualClock, rng: random.Random) -> None:
        self.state, self.time, self.rng = state, time, rng
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        self.pools = LocalSides(state, lost=lambda *_: None, clock=time.clock).pools
        self.queues = LocalQueues(state, lost=lambda *_: None, clock=time.clock)
        self.backend = PoolBackend(
            "local:",
            self.engine,
            LocalSides(state, lost=lambda *_: None, clock=time.clock),
            clock=time.clock,
        )
        self.settings = {each: self.draw_settings() for each in TYPES}
        for each, settings in self.settings.items():
            names = [f"{each}--{number}" for number in range(rng.randint(1, 3))]
            self.pools.create_pool(each, names, settings=settings)
        self.grants: dict[str, list[float]] = {each: [] for each in TYPES}
        self.waiting: dict[str, Waiting] = {}
        self.holding: list[str] = []
        self.came = 0

    def draw_settings(self) -> PoolSettings:
        choice = self.rng.choice
        return PoolSettings(choice([0.0, 5.0, 10.0]), choice([1, 1, 2]), choice([0.0, 7.0, 20.0]))

    def come(self) -> None:
        if len(self.waiting) == MOST_WAITING:
            return
        self.came += 1
        key, rng = f"h{self.came}", self.rng
        one, other = rng.sample(TYPES, 2)
        request = Request(one, priority=rng.choice([-1, 0, 0, 1, 2]))
        if rng.random() < 0.6:
            request = request._replace(other_types=(other,))
        elif rng.random() < 0.3:
            request = request._replace(name=f"{one}--0")
        else:
            request = request._replace(count=rng.choice([1, 2, 3]))
        record(self.state, key, request, now=self.time.clock.elapsed())
        journal = NoJournal()
        patience = Patience(rng.choice([None, None, 0.0, 4.0, 15.0]))
        turn = self.backend.turn(Claimant(key, key, request, this_process()), journal, patience)
        self.waiting[key] = Waiting(key, request, turn, journal)
        self.go(self.waiting[key], lambda: next(turn))

    def free(self) -> None:
        if self.holding:
            with self.engine.atomic():
                self.engine.free(self.holding.pop(self.rng.randrange(len(self.holding))))

    def interrupt(self) -> None:
        if self.waiting:
            one = self.rng.choice(list(self.waiting.values()))
            self.go(one, lambda: one.turn.throw(Interrupted(15)))

    def withdraw(self) -> None:
        if self.waiting:
            with self.engine.atomic():
                self.engine.withdraw(self.rng.choice(list(self.waiting)))

    def suspend(self) -> None:
        pool_type = self.rng.choice(TYPES)
        with self.engine.atomic():
            with contextlib.closing(self.queues.in_order(pool_type)) as tickets:
                found = list(tickets)
            if found:
                suspend(self.queues, pool_type, self.rng.choice(found))

    def let_pass(self) -> None:
        end = self.time.clock.elapsed() + self.rng.choice([0.5, 2.0, 5.0, 11.0])
        due: float | None = end
        while due is not None and due <= end:
            self.settle()
            due = earliest(*(each.sleep.until for each in self.waiting.values()))
            then = end if due is None else min(due, end)
            self.time.advance(max(0.0, then - self.time.clock.elapsed()))

    def settle(self) -> None:
        """Have those look who were woken or whose time has come, until there are none."""
        for _ in range(500):
            woken = [each for each in self.waiting.values() if self.has_to_look(each)]
            if not woken:
                return
            for each in woken:
                self.go(each, lambda e=each: e.turn.send(e.woken))  # type: ignore[misc]
        pytest.fail("they wake each other for ever")

    def has_to_look(self, one: Waiting) -> bool:
        one.woken = {fd for fd in one.sleep.fds if is_readable(fd, 0)}
        due = one.sleep.until
        return bool(one.woken) or (due is not None and due <= self.time.clock.elapsed())

    def go(self, one: Waiting, step: Callable[[], Sleep]) -> None:
        """Have one take a step, and see what there is of it where that was its last."""
        paid = self.paid()
        try:
            one.sleep = step()
            return
        except StopIteration:
            leases = one.journal.leases or ()
            assert len(leases) == one.request.count
            pool_type = leases[0].name.partition("--")[0]
            self.grants[pool_type].append(self.time.clock.elapsed())
            self.holding.append(one.key)
        except (NoLease, InvalidRequest, Interrupted):
            leases, pool_type = (), ""
        del self.waiting[one.key]
        others = [each for each in TYPES if each != pool_type]
        assert [self.paid()[each] for each in others] == [paid[each] for each in others]
        assert self.queues.tickets_of(one.key) == []
        held = self.state.query("SELECT name FROM resource WHERE owner = ?", one.key)
        assert sorted(row["name"] for row in held) == sorted(each.name for each in leases)

    def paid(self) -> dict[str, float]:
        rows = self.state.query("SELECT type, paid_until FROM pool_setting")
        return {**dict.fromkeys(TYPES, 0.0), **{row["type"]: row["paid_until"] for row in rows}}

    def end(self) -> None:
        for each in self.waiting.values():
            each.turn.close()

    def ask_all(self) -> None:
        """Who sleeps has nothing to get, and nothing to tell."""
        for one in list(self.waiting.values()):
            self.go(one, lambda e=one: e.turn.send(set()))  # type: ignore[misc]
            assert one.key in self.waiting, f"{one.key} slept on"


@pytest.fixture
def walk_of(state_dir: Path, manual_clock: ManualClock) -> Iterator[Callable[[int], Walk]]:
    with contextlib.closing(State.open(str(state_dir))) as state, contextlib.ExitStack() as ends:

        def make(seed: int) -> Walk:
            walk = Walk(state, manual_clock, random.Random(seed))
            ends.callback(walk.end)
            return walk

        yield make


@pytest.mark.once
@pytest.mark.parametrize("seed", [75, *range(WALKS)])  # two are each before the other in one pool
def test_nobody_sleeps_who_could_claim_in_either_pool(
    walk_of: Callable[[int], Walk], seed: int
) -> None:
    walk = walk_of(seed)
    often = [walk.come, walk.free, walk.let_pass] * 4
    for _ in range(STEPS):
        walk.rng.choice([*often, walk.interrupt, walk.withdraw, walk.suspend, walk.suspend])()
        walk.settle()
        if walk.rng.random() < OFTEN:
            walk.ask_all()
    for pool_type, settings in walk.settings.items():
        times, pace = walk.grants[pool_type], settings.pace_seconds
        assert too_fast(times, pace=pace, burst=settings.burst, slack=1e-6) == []
