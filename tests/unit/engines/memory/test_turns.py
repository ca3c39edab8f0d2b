"""When whose turn comes in pools in memory, also where somebody doesn't come: in virtual time.

Nobody is woken there by chance, so whoever isn't told of his turn never has it.
"""

from __future__ import annotations

from functools import partial

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.memory.engine import MemoryEngine
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.sides import MemorySides
from leasectl.engines.memory.store import MemoryStore
from leasectl.model import Claimant, Request
from leasectl.pools.simulation.running import VirtualTime
from tests.kit.recorded import NoJournal

ONE = Request("T")
LONG = 100_000.0


class Turns:
    """A pool of so many, and who comes to it when.

    Attributes:
        granted: When each was granted, by its key.
    """

    def __init__(self, capacity: int, settings: PoolSettings = NO_SETTINGS) -> None:
        self.time = VirtualTime()
        self.granted: dict[str, float] = {}
        store = MemoryStore(clock=self.time.clock, lost=lambda key, names: None)
        self.pools = MemoryPools(store)
        names = [f"T--{number}" for number in range(capacity)]
        self.pools.create_pool("T", names, settings=settings)
        self.engine = MemoryEngine(store, new_waker=self.time.new_waker)
        self.backend = PoolBackend(
            "memory:",
            self.engine,
            MemorySides(store),
            clock=self.time.clock,
        )

    def comes(self, at: float, key: str, request: Request = ONE, *, hold: float = LONG) -> None:
        """Somebody waits for its turn, then holds."""
        self.time.at(at, partial(self._begin, key, request, hold))

    def stops(self, at: float, key: str, request: Request = ONE) -> None:
        """Somebody comes, looks once, and never again."""
        self.time.at(at, partial(self._look_once, key, request))

    def leaves(self, at: float, key: str) -> None:
        """Somebody is withdrawn."""
        self.time.at(at, lambda: self.engine.withdraw(key))

    def run(self) -> dict[str, float]:
        """Have all that happen; when each was granted."""
        self.time.run()
        return self.granted

    def _begin(self, key: str, request: Request, hold: float) -> None:
        turn = self.backend.turn(Claimant(key, key, request), NoJournal(), Patience())
        self.time.begin(turn, partial(self._grant, key, hold))

    def _grant(self, key: str, hold: float) -> None:
        self.granted[key] = self.time.clock.elapsed()
        self.time.after(hold, lambda: self.engine.free(key))

    def _look_once(self, key: str, request: Request) -> None:
        waiter = self.engine.waiter(Claimant(key, key, request), until=None)
        waiter.enqueue()
        assert waiter.claim().leases is None


class TestWhoDoesNotCome:
    def test_the_next_has_its_turn_when_its_time_is_over(self) -> None:
        turns = Turns(1)
        turns.comes(0, "holder", hold=100)
        turns.stops(1, "stopped")
        turns.comes(2, "next")
        assert turns.run()["next"] == 100 + SUSPENDED_AFTER_SECONDS

    def test_so_has_the_one_after_that_if_the_next_has_left_meanwhile(self) -> None:
        turns = Turns(1)
        turns.comes(0, "holder", hold=100)
        turns.stops(1, "stopped")
        turns.comes(2, "leaver")
        turns.comes(3, "other")
        turns.leaves(105, "leaver")
        assert turns.run()["other"] == 100 + SUSPENDED_AFTER_SECONDS

    def test_its_time_begins_when_the_pace_lets_it(self) -> None:
        turns = Turns(5, PoolSettings(pace_seconds=50))
        turns.comes(0, "first")
        turns.stops(1, "stopped")
        turns.comes(2, "next")
        turns.comes(3, "other")
        found = turns.run()
        assert found["next"] == 50 + SUSPENDED_AFTER_SECONDS
        assert found["other"] == found["next"] + 50

    def test_its_time_begins_anew_when_a_better_one_has_taken_that_of_the_pace(self) -> None:
        turns = Turns(5, PoolSettings(pace_seconds=50))
        turns.comes(0, "first")
        turns.stops(1, "stopped")
        turns.comes(2, "next")
        turns.comes(55, "better", Request("T", priority=1))
        found = turns.run()
        assert found["better"] == 55
        assert found["next"] == 105 + SUSPENDED_AFTER_SECONDS

    def test_its_time_begins_when_there_is_no_pace_any_more(self) -> None:
        turns = Turns(5, PoolSettings(pace_seconds=1000))
        turns.comes(0, "first")
        turns.stops(1, "stopped")
        turns.comes(2, "next")
        turns.time.at(100, lambda: turns.pools.change_settings("T", NO_SETTINGS))
        assert turns.run()["next"] == 100 + SUSPENDED_AFTER_SECONDS

    def test_one_for_another_name_waits_no_longer_for_it(self) -> None:
        turns = Turns(5, PoolSettings(pace_seconds=50))
        turns.comes(0, "first", Request("T", name="T--0"))
        turns.stops(1, "stopped", Request("T", name="T--1"))
        turns.comes(2, "next", Request("T", name="T--2"))
        assert turns.run()["next"] == 50 + SUSPENDED_AFTER_SECONDS


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

    def test_who_has_become_better_takes_it_at_that_instant(self) -> None:
        assert self.begin().run()["old"] == 610

    def test_so_does_who_comes_after_one_that_has_left(self) -> None:
        turns = self.begin()
        turns.leaves(500, "old")
        assert turns.run()["younger"] == 620

    def test_who_has_passed_another_that_had_passed_it_takes_what_came_free_meanwhile(self) -> None:
        # From 101 to 150 "old" is the better one, before and after that "young".
        turns = Turns(1, PoolSettings(pace_seconds=170, aging_seconds=100))
        turns.comes(0, "holder", hold=120)
        turns.comes(1, "old")
        turns.comes(50, "young", Request("T", priority=1))
        assert turns.run()["young"] == 170
