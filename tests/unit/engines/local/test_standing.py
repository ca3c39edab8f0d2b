"""How things stand for a waiter on the embedded pool."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.facts import Standing
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.pools import LocalPools
from leasectl.engines.local.standing import standing_of
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.errors import NotFound
from leasectl.model import Claimant, Request
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.kit.pacing import standing_in
from tests.kit.support import ManualClock


class Desk:
    """A pool "T" of three, on a clock that stands still."""

    def __init__(self, state: State, time: ManualClock) -> None:
        self.time = time
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        self.pools = LocalPools(state, lost=lambda *_: None, clock=time.clock)
        self._store = LocalStore(state, lost=lambda *_: None, clock=time.clock)
        self.waiters: list[LocalWaiter] = []
        self.pools.create_pool("T", ["a", "b", "c"])
        self.pools.create_pool("other", ["d"])

    def standing(self, pool_type: str, ticket: int) -> Standing:
        return standing_of(self._store, Request(pool_type), ticket, clock=self.time.clock)

    def wait(self, claim_key: str, request: Request) -> LocalWaiter:
        claimant = Claimant(claim_key, f"job/1/host/{claim_key}", request, this_process())
        waiter = self.engine.waiter(claimant, until=None)
        self.waiters.append(waiter)
        with self.engine.atomic():
            waiter.enqueue()
        return waiter

    def hold(self, claim_key: str, request: Request) -> None:
        waiter = self.wait(claim_key, request)
        with self.engine.atomic():
            assert waiter.claim().leases is not None
        self.time.advance(1)


@pytest.fixture
def state(state_dir: Path) -> Iterator[State]:
    with contextlib.closing(State.open(str(state_dir))) as state:
        yield state


@pytest.fixture
def desk(state: State, manual_clock: ManualClock) -> Iterator[Desk]:
    desk = Desk(state, manual_clock)
    yield desk
    for waiter in desk.waiters:
        waiter.close()


def test_how_things_stand_is_what_the_whole_pool_says(desk: Desk) -> None:
    desk.hold("first", Request("T", ttl_seconds=9.0))
    desk.hold("second", Request("T"))
    desk.hold("elsewhere", Request("other"))
    waiters = [desk.wait(f"waits-{number}", Request("T", count=3)) for number in range(3)]
    (pool,) = desk.pools.pools("T")
    for waiter, entry in zip(waiters, pool.queue):
        assert waiter.standing() == standing_in(pool, entry.ticket)
    assert waiters[1].standing()[:5] == (2, 2, 2, 3, "job/1/host/first")


def test_what_has_expired_is_not_held_although_nobody_has_freed_it(desk: Desk) -> None:
    desk.hold("first", Request("T", ttl_seconds=9.0))
    desk.hold("second", Request("T"))
    desk.time.advance(9)
    found = desk.standing("T", 1)
    assert (found.held, found.longest_holder) == (1, "job/1/host/second")


def test_an_empty_pool_has_no_longest_holder(desk: Desk) -> None:
    assert desk.standing("T", 1) == Standing(1, 0, 0, 3)
    with pytest.raises(NotFound):
        desk.standing("unknown", 1)


def test_to_ask_how_things_stand_keeps_no_writer_waiting(desk: Desk, state: State) -> None:
    with open(state.path("state.lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert desk.standing("T", 1).capacity == 3
