"""The pace of an embedded pool, and the clocks of the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS, Outlook
from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.engines.local.witness import LocalWitness
from leasectl.model import Request
from leasectl.state.database import note_boot
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from tests.kit import recorded

PACE = 20.0


class Desk:
    """A pool "T" of nine with a pace, and two clocks that are set by hand."""

    def __init__(self, state: State) -> None:
        self.elapsed, self.wall = 1000.0, 1_700_000_000.0
        self.clock = Clock(elapsed=lambda: self.elapsed, wall=lambda: self.wall)
        self.state = state
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=self.clock)
        self.pools = LocalSides(state, lost=lambda *_: None, clock=self.clock).pools
        self.witness = LocalWitness(state, lost=lambda *_: None, clock=self.clock)
        self.waiters: list[LocalWaiter] = []
        names = [f"T--{number}" for number in range(9)]
        self.pools.create_pool("T", names, settings=PoolSettings(PACE))

    def come(self, name: str | None = None) -> tuple[LocalWaiter, Outlook]:
        request = Request("T", name=name)
        key = f"h{len(self.waiters)}"
        waiter = recorded.waiter(self.engine, self.state, key, request, now=self.elapsed)
        self.waiters.append(waiter)
        with self.engine.atomic():
            waiter.enqueue()
            return waiter, waiter.claim()

    def look(self, waiter: LocalWaiter) -> Outlook:
        with self.engine.atomic():
            return waiter.claim()


@pytest.fixture
def desk(state_dir: Path) -> Iterator[Desk]:
    with contextlib.closing(State.open(str(state_dir))) as state:
        desk = Desk(state)
        yield desk
        for waiter in desk.waiters:
            waiter.close()


@pytest.mark.parametrize("by", [-1e6, 1e6])
def test_a_wall_clock_that_is_set_changes_nothing(desk: Desk, by: float) -> None:
    desk.come()
    desk.wall += by
    waiter, outlook = desk.come()
    assert outlook.next_grant_at == 1000.0 + PACE
    desk.wall -= 3 * by
    desk.elapsed += PACE - 1
    assert desk.look(waiter).leases is None
    desk.elapsed += 1
    assert desk.look(waiter).leases is not None


def test_a_machine_that_was_suspended_has_saved_up_no_grants(desk: Desk) -> None:
    desk.come()
    waiter, _ = desk.come()
    desk.elapsed += 50 * PACE  # poll(2) doesn't count that, so that it looks only later
    assert desk.come()[1].is_behind
    assert desk.look(waiter).leases is not None
    last, outlook = desk.come()
    assert outlook.leases is None
    # The one behind it came while the first was still asleep, and is next.
    found = desk.look(desk.waiters[2])
    assert found.next_grant_at == desk.elapsed + PACE
    assert desk.look(last).is_behind


def test_after_a_reboot_nothing_is_owed(desk: Desk) -> None:
    desk.come()
    with desk.state.transaction() as db:
        note_boot(db)
    desk.elapsed = 3.0
    assert desk.come()[1].leases is not None
    assert desk.come()[1].next_grant_at == 3.0 + PACE


def test_a_grant_that_is_undone_has_paid_nothing(desk: Desk) -> None:
    with contextlib.suppress(RuntimeError), desk.engine.atomic():
        assert desk.come()[1].leases is not None
        raise RuntimeError
    assert desk.come()[1].leases is not None


def test_only_the_best_of_those_who_wait_for_the_time_is_expected_to_come(desk: Desk) -> None:
    desk.come()
    for name in ("T--7", "T--8", None):
        assert desk.come(name)[1].next_grant_at == 1000.0 + PACE
    desk.witness.look()
    desk.elapsed += PACE + SUSPENDED_AFTER_SECONDS
    assert [ticket.number for _, ticket, _ in desk.witness.look()] == [2]


def test_a_longer_pace_gives_the_head_its_time_anew(desk: Desk) -> None:
    for _ in range(4):
        desk.come()
    desk.witness.look()
    desk.pools.change_settings("T", PoolSettings(10 * PACE))
    desk.elapsed = 1000.0 + PACE
    assert desk.look(desk.waiters[1]).leases is not None  # the pace before allows this one
    desk.witness.look()
    desk.elapsed += 10 * PACE + SUSPENDED_AFTER_SECONDS - 1
    assert desk.witness.look() == []
    assert desk.witness.due() == desk.elapsed + 1
    desk.elapsed += 1
    assert [ticket.number for _, ticket, _ in desk.witness.look()] == [3]
