"""leasectl.engines.local.pools"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.pools import LocalPools
from leasectl.errors import NotFound
from leasectl.model import Claimant, Request, Standing, Ticket
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.kit.support import ManualClock


class Desk:
    """A pool "T" of three, on a clock that stands still."""

    def __init__(self, state: State, time: ManualClock) -> None:
        self.time = time
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        self.pools = LocalPools(state, lost=lambda *_: None, clock=time.clock)
        self.pools.create_pool("T", ["a", "b", "c"])
        self.pools.create_pool("other", ["d"])

    def wait(self, claim_key: str, request: Request) -> Ticket:
        claimant = Claimant(claim_key, f"job/1/host/{claim_key}", request, this_process())
        with self.engine.atomic():
            return self.engine.enqueue(claimant, self.engine.waiter(claimant))

    def hold(self, claim_key: str, request: Request) -> None:
        ticket = self.wait(claim_key, request)
        with self.engine.atomic():
            assert self.engine.claim(ticket) is not None
        self.time.advance(1)


@pytest.fixture
def state(state_dir: Path) -> Iterator[State]:
    with contextlib.closing(State.open(str(state_dir))) as state:
        yield state


@pytest.fixture
def desk(state: State, manual_clock: ManualClock) -> Desk:
    return Desk(state, manual_clock)


def test_how_things_stand_is_what_the_whole_pool_says(desk: Desk) -> None:
    desk.hold("first", Request("T", ttl_seconds=9.0))
    desk.hold("second", Request("T"))
    desk.hold("elsewhere", Request("other"))
    tickets = [desk.wait(f"waits-{number}", Request("T", count=3)) for number in range(3)]
    for ticket in tickets:
        (pool,) = desk.pools.pools("T")
        assert desk.pools.standing("T", ticket.number) == pool.standing(ticket.number)
    standing = desk.pools.standing("T", tickets[1].number)
    assert standing[:5] == (2, 2, 2, 3, "job/1/host/first")


def test_what_has_expired_is_not_held_although_nobody_has_freed_it(desk: Desk) -> None:
    desk.hold("first", Request("T", ttl_seconds=9.0))
    desk.hold("second", Request("T"))
    desk.time.advance(9)
    found = desk.pools.standing("T", 1)
    assert (found.held, found.longest_holder) == (1, "job/1/host/second")


def test_an_empty_pool_has_no_longest_holder(desk: Desk) -> None:
    assert desk.pools.standing("T", 1) == Standing(1, 0, 0, 3)
    with pytest.raises(NotFound):
        desk.pools.standing("unknown", 1)


def test_to_ask_how_things_stand_keeps_no_writer_waiting(desk: Desk, state: State) -> None:
    with open(state.path("state.lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert desk.pools.standing("T", 1).capacity == 3
