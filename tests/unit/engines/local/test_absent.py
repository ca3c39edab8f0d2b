"""leasectl.engines.local.absent: whose tickets go, of those whose waiters don't come."""

from __future__ import annotations

import os

import pytest

from leasectl.engines.local.absent import dead_ones, dead_passed, remove_dead_ones, remove_passed
from leasectl.engines.local.queues import LocalQueues
from leasectl.errors import NoLease
from leasectl.model import Process, Request
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.recorded import record
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

ALIVE = this_process()
DEAD = ALIVE._replace(start_time=1)


@pytest.fixture
def queues(desk: Desk) -> LocalQueues:
    desk.pool(1)
    return LocalQueues(desk.state, lost=lambda owner, names: None, clock=desk.time.clock)


def suspend(desk: Desk, number: int) -> None:
    desk.state.db.execute("INSERT INTO suspended VALUES ('T', ?)", (number,))


def test_of_those_that_were_found_only_who_is_still_dead_and_passed_goes(
    desk: Desk, queues: LocalQueues
) -> None:
    for number, process in enumerate((DEAD, ALIVE, DEAD), start=1):
        desk.put_ticket(number, process)
    suspend(desk, 1)
    suspend(desk, 2)
    assert dead_passed(desk.state) == [("T", 1)]
    with desk.state.transaction():
        # The last two are of tickets that others have taken away since.
        remove_passed(queues, [("T", number) for number in (1, 2, 3, 4, 9)])
    assert desk.tickets() == [2, 3]
    assert dead_passed(desk.state) == []


@pytest.mark.parametrize(("number", "left"), [(1, []), (15, []), (16, [1]), (20, [1, 2, 3, 4, 5])])
def test_of_those_dead_before_one_the_nearest_are_taken_away_and_many_passed(
    desk: Desk, queues: LocalQueues, number: int, left: list[int]
) -> None:
    for each in range(1, number + 1):
        desk.put_ticket(each, DEAD)
    assert desk.acquire().names == ("T--00",)
    assert desk.tickets() == left
    assert [each for _, each in dead_passed(desk.state)] == left[::-1]


def test_where_not_all_are_alike_each_of_the_dead_is_taken_away(
    desk: Desk, queues: LocalQueues
) -> None:
    for number in range(1, 21):
        desk.put_ticket(number, DEAD)
    assert desk.acquire(Request("T", priority=-1)).names == ("T--00",)
    assert desk.tickets() == []


@pytest.mark.parametrize("process", [ALIVE, None], ids=["alive", "not known"])
def test_who_is_not_known_to_be_dead_is_passed_by_nobody(
    desk: Desk, queues: LocalQueues, process: Process | None
) -> None:
    for number in range(1, 21):
        desk.put_ticket(number, DEAD)
    desk.put_ticket(21, process)
    for number in range(22, 42):
        desk.put_ticket(number, DEAD)
    with pytest.raises(NoLease):
        desk.acquire()
    assert sorted(desk.tickets()) == list(range(1, 27))
    assert {each for _, each in dead_passed(desk.state)} == {22, 23, 24, 25, 26}
    found = {each.number for each in dead_ones(queues, "T")}
    assert found == {*range(1, 27)} - {21}


def test_one_that_is_dead_leaves_no_ticket_in_any_queue(desk: Desk, line: Line) -> None:
    desk.pool(1)
    desk.pool(1, "U")
    desk.acquire(Request("U"))
    record(desk.state, "either", Request("T", other_types=("U",)), now=0.0)
    for pool_type in ("T", "U"):
        desk.state.db.execute(
            "INSERT INTO ticket VALUES (?, 1, 'either', 'job/1/host/either', 1, 0, ?, ?)",
            (pool_type, DEAD.encode(), f"waiter-{pool_type}"),
        )
        desk.state.db.execute("UPDATE pool SET last_ticket = 1 WHERE type = ?", (pool_type,))
        os.mkfifo(desk.state.waiter_pipe(f"waiter-{pool_type}"))
    line.put("behind", Request("U"))
    line.woken()
    assert desk.acquire().names == ("T--00",)
    assert desk.state.query("SELECT owner FROM ticket WHERE owner = 'either'") == []
    assert [each for each in os.listdir(desk.directory / "waiters") if each[-1] in "TU"] == []
    assert "behind" in line.woken()


@pytest.mark.parametrize("priority", [0, 1])
def test_what_a_dead_one_waited_for_by_name_is_had_by_who_is_next(
    desk: Desk, queues: LocalQueues, priority: int
) -> None:
    record(desk.state, "T-1", Request("T", name="T--00"), now=0.0)
    desk.put_ticket(1, DEAD)
    if priority:
        with desk.state.transaction():
            queues.order("T").add(1, priority)
    assert desk.acquire().names == ("T--00",)
    assert desk.tickets() == []


def test_of_one_that_has_died_its_record_is_told(desk: Desk) -> None:
    lost: list[tuple[str, object]] = []
    desk.pool(1)
    queues = LocalQueues(desk.state, lost=lambda *what: lost.append(what), clock=desk.time.clock)
    desk.put_ticket(1, DEAD)
    desk.put_ticket(2, ALIVE)
    with desk.state.transaction():
        remove_dead_ones(queues, "T", dead_ones(queues, "T"))
    assert lost == [("T-1", ())]
    (told,) = [each for each in desk.service.events.read() if each.kind == "gave up"]
    assert (told.handle, told.reason) == ("T-1", "its process ended")
