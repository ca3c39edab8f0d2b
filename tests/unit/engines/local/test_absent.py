"""leasectl.engines.local.absent: whose tickets go, of those whose waiters don't come."""

from __future__ import annotations

import pytest

from leasectl.engines.local.absent import dead_passed, remove_passed
from leasectl.engines.local.queues import LocalQueues
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk

ALIVE = this_process()
DEAD = ALIVE._replace(start_time=1)


@pytest.fixture
def queues(desk: Desk) -> LocalQueues:
    desk.pool(1)
    return LocalQueues(desk.state, lost=lambda owner, names: None, clock=desk.time.clock)


def suspend(desk: Desk, number: int) -> None:
    desk.state.db.execute("INSERT INTO suspended VALUES ('T', ?, ?)", (number, f"T-{number}"))


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
