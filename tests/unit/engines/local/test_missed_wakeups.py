"""A random walk over a pool and those who wait for it: nobody sleeps who could claim.

Whoever isn't woken, and whose time hasn't come, is asked now and then all the same, and has to get
nothing. Not after each step: who has just looked knows how things are, woken or not.
LEASECTL_TEST_WALKS says how many walks there are.
"""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from leasectl.engines.contract import Outlook
from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.queues import LocalQueues
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.errors import InvalidRequest
from leasectl.model import Claimant, Request
from leasectl.state.directory import State
from leasectl.system.clock import earliest
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from tests.kit.pool_changes import add_resources
from tests.kit.recorded import record
from tests.kit.support import ManualClock

WALKS = int(os.environ.get("LEASECTL_TEST_WALKS", "6"))
STEPS = 150
OFTEN = 0.1
MOST_WAITING = 12


class Walk:
    """A pool, those who wait for it, and those who hold something of it."""

    def __init__(self, state: State, time: ManualClock, rng: random.Random) -> None:
        self.state, self.time, self.rng = state, time, rng
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        sides = LocalSides(state, lost=lambda *_: None, clock=time.clock)
        self.pools, self.members = sides.pools, sides.members
        self.queues = LocalQueues(state, lost=lambda *_: None, clock=time.clock)
        self.names = [f"T--{number}" for number in range(rng.randint(1, 4))]
        self.is_paced, self.ages = rng.random() < 0.6, rng.random() < 0.5
        self.pools.create_pool("T", self.names, settings=self.draw_settings())
        self.waiting: dict[str, LocalWaiter] = {}
        self.looks_at: dict[str, float | None] = {}
        self.holding: list[str] = []
        self.came = 0

    def draw_settings(self) -> PoolSettings:
        return PoolSettings(
            self.rng.choice([0.0, 5.0, 10.0]) if self.is_paced else 0.0,
            self.rng.choice([1, 1, 2, 3]),
            self.rng.choice([0.0, 7.0, 20.0]) if self.ages else 0.0,
        )

    def come(self) -> None:
        if len(self.waiting) == MOST_WAITING:
            return
        self.came += 1
        key, rng = f"h{self.came}", self.rng
        request = Request("T", rng.choice([1, 1, 2, 3]), priority=rng.choice([-1, 0, 0, 1, 2]))
        if rng.random() < 0.35:
            request = request._replace(count=1, name=rng.choice(self.names))
        record(self.state, key, request, now=self.time.clock.elapsed())
        waiter = self.engine.waiter(Claimant(key, key, request, this_process()), until=None)
        with contextlib.suppress(InvalidRequest), self.engine.atomic():  # more than there are
            waiter.enqueue()
            self.waiting[key] = waiter
            self.note(key, waiter.claim())

    def free(self) -> None:
        if self.holding:
            with self.engine.atomic():
                self.engine.free(self.holding.pop(self.rng.randrange(len(self.holding))))

    def leave(self) -> None:
        if self.waiting:
            waiter = self.waiting.pop(self.rng.choice(list(self.waiting)))
            with self.engine.atomic():
                waiter.dequeue()
            waiter.close()

    def suspend(self) -> None:
        with self.engine.atomic():
            with contextlib.closing(self.queues.in_order("T")) as tickets:
                found = list(tickets)
            if found:
                suspend(self.queues, "T", self.rng.choice(found))

    def change(self) -> None:
        self.pools.change_settings("T", self.draw_settings())

    def add(self) -> None:
        self.names.append(f"T--more-{len(self.names)}")
        add_resources(self.members, "T", self.names[-1:])

    def let_pass(self) -> None:
        end = self.time.clock.elapsed() + self.rng.choice([0.5, 2.0, 5.0, 11.0])
        while True:
            now = self.time.clock.elapsed()
            due = earliest(*(self.looks_at[key] for key in self.waiting))
            self.time.advance(max(0.0, (end if due is None else min(due, end)) - now))
            self.settle()
            if due is None or due > end:
                return

    def settle(self) -> None:
        """Have those look who were woken or whose time has come, until there are none."""
        for _ in range(1000):
            woken = [key for key, waiter in self.waiting.items() if self.has_to_look(key, waiter)]
            if not woken:
                return
            for key in woken:
                self.look(key)
        pytest.fail("they wake each other for ever")

    def has_to_look(self, key: str, waiter: LocalWaiter) -> bool:
        fds, _ = waiter.listen(())
        due = self.looks_at[key]
        woken = {fd for fd in fds if is_readable(fd, 0)}
        waiter.heard(woken)
        return bool(woken) or (due is not None and due <= self.time.clock.elapsed())

    def look(self, key: str) -> bool:
        with self.engine.atomic():
            return self.note(key, self.waiting[key].claim())

    def note(self, key: str, outlook: Outlook) -> bool:
        self.looks_at[key] = earliest(outlook.look_again_at, outlook.next_grant_at)
        if outlook.leases is None:
            return False
        self.waiting.pop(key).close()
        self.holding.append(key)
        return True


@pytest.mark.once
@pytest.mark.parametrize("seed", [75, *range(WALKS)])  # several pass at one instant
def test_nobody_sleeps_who_could_claim(
    state_dir: Path, manual_clock: ManualClock, seed: int
) -> None:
    rng = random.Random(seed)
    with contextlib.closing(State.open(str(state_dir))) as state:
        walk = Walk(state, manual_clock, rng)
        often = [walk.come, walk.free, walk.let_pass] * 4
        steps = [*often, walk.leave, walk.leave, walk.suspend, walk.change, walk.add]
        for _ in range(STEPS):
            rng.choice(steps)()
            walk.settle()
            if rng.random() < OFTEN:
                assert [key for key in list(walk.waiting) if walk.look(key)] == []
        for waiter in walk.waiting.values():
            waiter.close()
