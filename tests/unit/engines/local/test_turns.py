"""Whose turn comes when, in virtual time: a waiter that isn't told of its turn never has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.model import Claimant, Request
from leasectl.pools.simulation.running import VirtualTime
from leasectl.state.in_memory import MemoryState, record
from tests.kit.made_up_store import nobody_is_told
from tests.kit.recorded import NoJournal

ONE = Request("T")
LONG = 100_000.0


class Turns:
    """A pool, and the waiters that come to it.

    Attributes:
        granted: When each was granted, by its key.
    """

    def __init__(self, capacity: int, settings: PoolSettings) -> None:
        self.time = VirtualTime()
        self.granted: dict[str, float] = {}
        self.state, clock = MemoryState(self.time.new_waker), self.time.clock
        self.engine = LocalEngine(self.state, lost=nobody_is_told, clock=clock)
        sides = LocalSides(self.state, lost=nobody_is_told, clock=clock)
        names = [f"T--{number}" for number in range(capacity)]
        sides.pools.create_pool("T", names, settings=settings)
        self.backend = PoolBackend("local:", self.engine, sides, clock=clock)

    def comes(self, at: float, key: str, request: Request = ONE, *, hold: float = LONG) -> None:
        """Let a waiter come at a time, and hold what it is granted."""
        self.time.at(at, partial(self._begin, key, request, hold))

    def leaves(self, at: float, key: str) -> None:
        """Withdraw a waiter."""
        self.time.at(at, partial(self._change, self.engine.withdraw, key))

    def run(self) -> dict[str, float]:
        self.time.run()
        return self.granted

    def _begin(self, key: str, request: Request, hold: float) -> None:
        claimant = Claimant(key, key, request)
        with self.engine.atomic():
            record(self.state, claimant)
        turn = self.backend.turn(claimant, NoJournal(), Patience())
        self.time.begin(turn, partial(self._grant, key, hold))

    def _grant(self, key: str, hold: float) -> None:
        self.granted[key] = self.time.clock.elapsed()
        self.time.after(hold, partial(self._change, self.engine.free, key))

    def _change(self, change: Callable[[str], object], key: str) -> None:
        with self.engine.atomic():
            change(key)


class TestAgeing:
    """Of two one comes free at 400, which is too little for the group that is the head."""

    def begin(self) -> Turns:
        turns = Turns(2, PoolSettings(aging_seconds=600))
        turns.comes(0, "one")
        turns.comes(0, "another", hold=400)
        turns.comes(10, "old", Request("T", priority=-1))
        turns.comes(20, "younger", Request("T", priority=-1))
        turns.comes(300, "group", Request("T", count=2))
        return turns

    def test_a_waiter_that_has_become_better_takes_it_at_that_instant(self) -> None:
        assert self.begin().run()["old"] == 610

    def test_so_does_the_next_when_the_better_one_has_left(self) -> None:
        turns = self.begin()
        turns.leaves(500, "old")
        assert turns.run()["younger"] == 620

    def test_a_waiter_that_passes_back_takes_what_came_free_meanwhile(self) -> None:
        # From 101 to 150 "old" is the better one, before and after that "young".
        turns = Turns(1, PoolSettings(pace_seconds=170, aging_seconds=100))
        turns.comes(0, "holder", hold=120)
        turns.comes(1, "old")
        turns.comes(50, "young", Request("T", priority=1))
        assert turns.run()["young"] == 170

    def test_many_of_one_instant_pass_another_in_their_order(self) -> None:
        turns = Turns(1, PoolSettings(aging_seconds=100))
        turns.comes(0, "holder", hold=160)
        for number in range(3):
            turns.comes(1, f"old {number}", hold=10)
        turns.comes(50, "young", Request("T", priority=1), hold=10)
        found = turns.run()
        assert sorted(found, key=lambda each: found[each]) == [
            "holder", "young", "old 0", "old 1", "old 2",
        ]  # fmt: skip
