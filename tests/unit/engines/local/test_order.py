"""The order of a queue in which not all tickets are alike."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.contract import Outlook
from leasectl.engines.facts import PoolSettings, QueueEntry
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.order import LocalOrder
from leasectl.engines.local.queues import LocalQueues, Waiting
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.engines.rules.turns import effective_priority
from leasectl.model import Request
from leasectl.state.database import note_boot
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.kit import recorded
from tests.kit.pool_changes import add_resources
from tests.kit.support import ManualClock

AGING = 10.0


class Desk:
    """A pool "T" of two, on a clock that stands still."""

    def __init__(self, state: State, time: ManualClock) -> None:
        self.state = state
        self.time = time
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        sides = LocalSides(state, lost=lambda *_: None, clock=time.clock)
        self.pools, self.members = sides.pools, sides.members
        self.queues = LocalQueues(state, lost=lambda *_: None, clock=time.clock)
        self.put = 0
        self.pools.create_pool("T", ["a", "b"])

    def age(self) -> None:
        self.pools.change_settings("T", PoolSettings(aging_seconds=AGING))

    def wait(self, priority: int = 0, *, count: int = 1, name: str | None = None) -> LocalWaiter:
        self.put += 1
        request = Request("T", count=count, priority=priority, name=name)
        now = self.time.clock.elapsed()
        waiter = recorded.waiter(self.engine, self.state, f"h{self.put}", request, now=now)
        with self.engine.atomic():
            waiter.enqueue()
        return waiter

    def shown(self) -> tuple[QueueEntry, ...]:
        (pool,) = self.pools.pools("T")
        return pool.queue

    def numbers(self) -> list[int]:
        with contextlib.closing(self.queues.in_order("T")) as tickets:
            return [each.number for each in tickets]

    def ticket(self, number: int) -> Waiting:
        with contextlib.closing(self.queues.in_order("T")) as tickets:
            return next(each for each in tickets if each.number == number)


@pytest.fixture
def desk(state_dir: Path, manual_clock: ManualClock) -> Iterator[Desk]:
    with contextlib.closing(State.open(str(state_dir))) as state:
        yield Desk(state, manual_clock)


@pytest.mark.parametrize("aging", [False, True])
def test_all_ways_to_ask_agree_with_the_sorted_queue(desk: Desk, aging: bool) -> None:
    rng = random.Random(3)
    if aging:
        desk.age()
    came: dict[int, tuple[int, float]] = {}
    for number in range(1, 61):
        priority = rng.choice([-3, -1, 0, 0, 0, 2, 5])
        desk.wait(priority).close()
        came[number] = priority, desk.time.clock.elapsed()
        desk.time.advance(rng.choice([0.0, 0.5, AGING / 2, AGING]))

    def rank(number: int) -> tuple[int, int]:
        priority, queued_at = came[number]
        waited = desk.time.clock.elapsed() - queued_at
        return -effective_priority(priority, waited, AGING if aging else 0.0), number

    for _ in range(12):
        wanted = sorted(came, key=rank)
        assert desk.numbers() == wanted
        assert [entry.ticket for entry in desk.shown()] == wanted
        assert [-entry.effective_priority for entry in desk.shown()] == [rank(n)[0] for n in wanted]
        order = desk.queues.order("T")
        with desk.state.transaction():
            for place, number in enumerate(wanted):
                ticket = desk.ticket(number)
                assert [each.number for each in order.behind(ticket)] == wanted[place + 1 :]
                assert [each.number for each in order.before(ticket)] == wanted[:place][::-1]
        gone = rng.choice(wanted)
        with desk.state.transaction():
            desk.queues.take_away("T", gone, why="test")
        del came[gone]
        desk.time.advance(rng.random() * AGING)


def test_it_is_told_when_one_passes_another(desk: Desk) -> None:
    desk.age()
    desk.wait(0).close()
    desk.time.advance(4)
    desk.wait(1).close()
    early, late = desk.ticket(1), desk.ticket(2)
    order = desk.queues.order("T")
    assert order.rank(late) < order.rank(early)
    passes_at = order.overtakes_at(early, late)
    assert passes_at == desk.time.clock.elapsed() + 6
    desk.time.advance(6)
    order = desk.queues.order("T")
    assert order.rank(early) < order.rank(late)
    assert order.overtakes_at(late, early) == desk.time.clock.elapsed() + 4
    desk.wait(0).close()
    assert desk.queues.order("T").overtakes_at(desk.ticket(3), early) is None


class TestWaking:
    """Who looks again when the order changes: nobody tells who ages."""

    @pytest.fixture
    def woken(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """The pipes that were opened for it."""
        woken: set[str] = set()
        monkeypatch.setattr(desk.state, "wake", lambda pipe: woken.add(Path(pipe).name))
        return woken

    def look(self, desk: Desk, waiter: LocalWaiter) -> Outlook:
        with desk.engine.atomic():
            return waiter.claim()

    def wait_in_vain(self, desk: Desk, priority: int, count: int = 1) -> LocalWaiter:
        waiter = desk.wait(priority, count=count)
        assert self.look(desk, waiter).leases is None
        return waiter

    def test_one_looks_when_it_passes_another_and_wakes_those_on_both_sides(
        self, desk: Desk, woken: set[str]
    ) -> None:
        desk.age()
        assert self.look(desk, desk.wait(count=2)).leases is not None
        early = self.wait_in_vain(desk, 0)
        desk.time.advance(4)
        passed = self.wait_in_vain(desk, 1)
        desk.time.advance(1)
        behind = self.wait_in_vain(desk, 0)
        assert self.look(desk, early).look_again_at == desk.time.clock.elapsed() + 5
        assert self.look(desk, passed).look_again_at is None
        assert self.look(desk, behind).look_again_at is None
        woken.clear()
        desk.time.advance(5)
        assert self.look(desk, early).is_head
        assert woken >= {desk.ticket(3).pipe, desk.ticket(4).pipe}
        for waiter in (early, passed, behind):
            waiter.close()

    def test_one_that_has_aged_wakes_nobody_as_long_as_it_passes_nobody(
        self, desk: Desk, woken: set[str]
    ) -> None:
        desk.age()
        assert self.look(desk, desk.wait(count=2)).leases is not None
        first, second = self.wait_in_vain(desk, 0), self.wait_in_vain(desk, 0)
        other, third = self.wait_in_vain(desk, -2), self.wait_in_vain(desk, 0)
        woken.clear()
        for _ in range(3):
            desk.time.advance(AGING)
            for waiter in (first, second, third, other):
                assert not self.look(desk, waiter).leases
        assert woken == set()
        for waiter in (first, second, other, third):
            waiter.close()

    def test_whom_others_pass_is_not_told_of_what_is_free(
        self, desk: Desk, woken: set[str]
    ) -> None:
        assert self.look(desk, desk.wait()).leases is not None
        passed, group = self.wait_in_vain(desk, 2, count=2), self.wait_in_vain(desk, 1, count=2)
        behind = self.wait_in_vain(desk, 0)
        with desk.state.transaction():
            suspend(desk.queues, "T", desk.ticket(2))
        woken.clear()
        assert self.look(desk, behind).is_behind
        assert desk.ticket(2).pipe not in woken
        assert desk.ticket(3).pipe in woken
        for waiter in (passed, group, behind):
            waiter.close()

    def test_a_better_newcomer_has_nobody_looked_after(self, desk: Desk, woken: set[str]) -> None:
        """Who is behind it has less to claim, not more."""
        desk.age()
        assert self.look(desk, desk.wait(count=2)).leases is not None
        first = self.wait_in_vain(desk, 0)
        woken.clear()
        better = self.wait_in_vain(desk, 1)
        assert woken == {desk.ticket(2).pipe}
        first.close()
        better.close()

    def test_nobody_is_woken_for_what_a_better_one_keeps_from_it(
        self, desk: Desk, woken: set[str]
    ) -> None:
        assert self.look(desk, desk.wait(name="a")).leases is not None
        group = self.wait_in_vain(desk, 1, count=2)
        named, behind = desk.wait(0, name="b"), self.wait_in_vain(desk, -1)
        woken.clear()
        self.look(desk, behind)
        assert woken == {desk.ticket(2).pipe, "witness"}
        for waiter in (group, named, behind):
            waiter.close()

    def test_of_the_same_it_is_told_once(self, desk: Desk, woken: set[str]) -> None:
        assert self.look(desk, desk.wait()).leases is not None
        add_resources(desk.members, "T", ["c"])
        group, behind = self.wait_in_vain(desk, 1, count=3), self.wait_in_vain(desk, 0)
        self.look(desk, behind)
        woken.clear()
        self.look(desk, behind)
        assert desk.ticket(2).pipe not in woken
        with desk.engine.atomic():
            desk.engine.free("h1")
        woken.clear()
        self.look(desk, behind)
        assert desk.ticket(2).pipe in woken
        group.close()
        behind.close()


def test_as_long_as_all_are_alike_there_are_no_rows(desk: Desk) -> None:
    for _ in range(3):
        desk.wait().close()
    assert desk.state.query("SELECT 1 FROM ranked_ticket") == []
    desk.wait(-1).close()
    assert len(desk.state.query("SELECT 1 FROM ranked_ticket")) == 4


def test_of_thousands_queued_at_one_instant_the_nearest_are_found_at_once(desk: Desk) -> None:
    desk.age()
    with desk.state.transaction():
        for number in range(150):
            desk.wait(number % 3 - 1).close()
    rows = 0

    def read(sql: str, *values: object) -> list[Waiting]:
        nonlocal rows
        found = desk.queues._rows(sql, *values)
        rows += len(found)
        return found

    for aged in (0.5 * AGING, AGING, 2 * AGING):
        now = desk.time.clock.elapsed() + aged
        order = LocalOrder(desk.state, "T", now=now, read=read)
        ranked = sorted(order.best_first(), key=order.rank)
        rows = 0
        for before, ticket, behind in zip(ranked, ranked[1:], ranked[2:]):
            assert next(order.before(ticket)).number == before.number
            assert next(order.behind(ticket)).number == behind.number
            assert not order.has_passed(ticket, order.rank(ticket))
        assert rows < 20 * len(ranked)


def test_after_a_reboot_nobody_is_older_than_the_boot(desk: Desk) -> None:
    desk.age()
    desk.time.advance(5 * AGING)
    desk.wait(0).close()
    with desk.state.transaction() as db:
        note_boot(db)
    desk.time.advance(-5 * AGING)
    assert desk.state.query("SELECT 1 FROM ranked_ticket") == []
    desk.wait(1).close()
    assert {entry.effective_priority for entry in desk.shown()} == {0, 1}


@pytest.mark.once
def test_of_ten_thousand_that_wait_the_best_is_found_as_fast_as_of_a_hundred(desk: Desk) -> None:
    desk.age()
    rng = random.Random(5)

    def more(number: int) -> None:
        process, now = this_process().encode(), desk.time.clock.elapsed()
        rows = [(desk.put + n, f"h{desk.put + n}") for n in range(1, number + 1)]
        desk.put += number
        with desk.state.transaction() as db:
            db.executemany(
                "INSERT INTO ticket VALUES ('T', ?, ?, '', 1, 0.0, ?, 'nobody-listens')",
                [(*row, process) for row in rows],
            )
            db.executemany(
                "INSERT INTO ranked_ticket VALUES ('T', ?, ?, ?)",
                [(row[0], rng.randint(-5, 5), now + row[0] / 100) for row in rows],
            )
            db.execute("UPDATE pool SET last_ticket = ?", (desk.put,))
        desk.time.advance(number / 100)

    def steps() -> int:
        """What SQLite does, in hundreds of its steps, for 15 waiters that come, look and go."""
        done: list[None] = []
        desk.state.db.set_progress_handler(lambda: done.append(None), 100)
        for _ in range(15):
            with desk.state.transaction():
                waiter = desk.wait(rng.randint(-5, 5), count=2)
                waiter.claim()
                waiter.dequeue()
            waiter.close()
        desk.state.db.set_progress_handler(None, 0)
        return len(done)

    holder = desk.wait(100)
    with desk.state.transaction():
        assert holder.claim().leases is not None
    more(100)
    few = steps()
    more(9900)
    many = steps()
    print(f"{few} and {many} hundred steps")
    assert many < 4 * few


def test_one_that_goes_takes_its_place_with_it(desk: Desk) -> None:
    for priority in (2, 1):
        desk.wait(priority).close()
    with desk.state.transaction():
        desk.queues.take_away("T", 1, why="test")
    rows = desk.state.query("SELECT number FROM ranked_ticket")
    assert [row["number"] for row in rows] == [2]


def test_those_before_one_are_told_as_far_as_the_first_that_keeps_all_back(desk: Desk) -> None:
    for name in (None, "a", None, "a", "b"):
        desk.wait(name=name).close()
    with desk.state.transaction():
        found = {number: desk.queues.up_to("T", number) for number in range(1, 7)}
    assert {number: [each.number for each in tickets] for number, tickets in found.items()} == {
        1: [1],
        2: [2, 1],
        3: [3, 2, 1],
        4: [4, 3],
        5: [5, 4, 3],
        6: [5, 4, 3],  # it is for who asks to see that its own isn't there
    }


def test_so_they_are_where_not_all_are_alike(desk: Desk) -> None:
    for name, priority in ((None, 0), ("a", 0), (None, 1), ("a", 1), ("b", -1)):
        desk.wait(priority, name=name).close()
    with desk.state.transaction():
        found = {number: desk.queues.up_to("T", number) for number in range(1, 6)}
    assert {number: [each.number for each in tickets] for number, tickets in found.items()} == {
        1: [1, 4, 3],
        2: [2, 1],
        3: [3],
        4: [4, 3],
        5: [5, 2, 1],
    }


def test_who_waits_ages_from_when_its_ticket_was_put(desk: Desk) -> None:
    """Whose record is older: it may have waited elsewhere before."""
    desk.age()
    now = desk.time.clock.elapsed()
    request = Request("T", priority=1)
    waiter = recorded.waiter(desk.engine, desk.state, "h1", request, now=now)
    desk.time.advance(30.0)
    with desk.engine.atomic():
        waiter.enqueue()
    waiter.close()
    assert [entry.effective_priority for entry in desk.shown()] == [1]
    desk.time.advance(10.0)
    assert [entry.effective_priority for entry in desk.shown()] == [2]


def test_who_was_there_before_any_had_a_place_ages_from_when_it_was_recorded(desk: Desk) -> None:
    desk.wait().close()
    desk.time.advance(25.0)
    desk.age()
    desk.wait().close()
    assert [(each.ticket, each.effective_priority) for each in desk.shown()] == [(1, 2), (2, 0)]


def test_nobody_ages_from_later_than_who_came_after_it(desk: Desk) -> None:
    """Of one priority the earlier is the better: their numbers and times agree."""
    desk.wait().close()
    desk.wait().close()
    desk.state.db.execute("UPDATE handle SET queued_at = queued_at + 50.0 WHERE id = 'h1'")
    desk.time.advance(10.0)
    desk.age()
    assert desk.numbers() == [1, 2]
    assert [entry.effective_priority for entry in desk.shown()] == [1, 1]
