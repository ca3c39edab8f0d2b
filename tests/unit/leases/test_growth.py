"""What a verb takes is the same beside a few and beside hundreds."""

from __future__ import annotations

from typing import Callable

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import acquire
from leasectl.leases.delay import announce
from leasectl.leases.release import finish, release
from leasectl.model import Handle, Request, whole
from leasectl.system.process import this_process
from tests.kit.desk import Desk

FEW, MANY = 10, 1000
HELD = 500


def steps(desk: Desk, act: Callable[[], object]) -> int:
    """How many instructions SQLite takes for an act; to find a row by an index is one of them."""
    taken = 0

    def one_more() -> None:
        nonlocal taken
        taken += 1

    desk.state.db.set_progress_handler(one_more, 1)
    try:
        act()
    finally:
        desk.state.db.set_progress_handler(None, 0)
    return taken


def costs(desk: Desk, request: Request) -> dict[str, int]:
    """What each step of a pair takes, the least of some: now and then one looks for what is old."""
    rounds = [_costs(desk, request) for _ in range(3)]
    return {verb: min(each[verb] for each in rounds) for verb in rounds[0]}


def _costs(desk: Desk, request: Request) -> dict[str, int]:
    granted: list[Handle] = []

    def take() -> None:
        patience = Patience(wait_seconds=0)
        granted.append(acquire(desk.service, request, patience=patience))

    def give_back() -> None:
        release(desk.service, whole(granted[-1]))

    return {
        "acquire": steps(desk, take),
        "announce": steps(desk, lambda: announce(desk.service, granted[-1])),
        "release": steps(desk, give_back),
        "acquire again": steps(desk, take),
        "finish": steps(desk, lambda: finish(desk.service, granted[-1])),
    }


def test_a_large_pool_and_many_holders_cost_a_verb_nothing(desk: Desk) -> None:
    desk.pool(FEW, "F")
    few = costs(desk, Request("F"))
    desk.pool(MANY, "M")
    for _ in range(HELD):
        desk.acquire(Request("M"), guard=this_process())
    many = costs(desk, Request("M"))
    dearer = {verb: (few[verb], many[verb]) for verb in few if many[verb] > few[verb] * 1.25}
    assert dearer == {}
