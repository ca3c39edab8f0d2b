"""leasectl.engines.local.absent: what was ended by force, and who may have it when."""

from __future__ import annotations

import pytest

from leasectl.engines.local.absent import LocalEarlyEnds
from leasectl.engines.local.store import LocalStore
from leasectl.errors import NoLease
from leasectl.model import Handle, Process, Request
from leasectl.state.event import Event
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

ALIVE = this_process()
DEAD = ALIVE._replace(start_time=1)
SHORT = Request("T", ttl_seconds=60.0)


@pytest.fixture(autouse=True)
def pool(desk: Desk) -> None:
    desk.pool(1)


def end(desk: Desk, handle: Handle, guard: Process | None = None) -> tuple[str, ...]:
    pools = desk.service.pools
    return pools.end_early(handle.id, ["T--00", "other"], guard=guard, reason="asked to")


def is_had(desk: Desk) -> bool:
    """Have somebody ask for what there is."""
    try:
        desk.acquire()
    except NoLease:
        return False
    return True


def told(desk: Desk) -> list[Event]:
    """Which ends are told of."""
    return [each for each in desk.service.events.read() if each.kind in ("lost", "released")]


def left(desk: Desk) -> int:
    """Of how many it is still known that they were ended."""
    return len(desk.state.query("SELECT * FROM ended"))


def test_what_expires_is_kept_until_its_time_is_over(desk: Desk) -> None:
    handle = desk.acquire(SHORT)
    assert end(desk, handle) == ("T--00",)
    assert desk.record(handle).lost
    assert end(desk, handle) == ()  # as long as that may be used
    desk.time.advance(59.0)
    assert not is_had(desk)
    desk.time.advance(1.0)
    assert is_had(desk)
    assert left(desk) == 0


@pytest.mark.parametrize("request_", [Request("T"), SHORT])
def test_what_has_a_guard_is_kept_until_that_has_ended(desk: Desk, request_: Request) -> None:
    handle = desk.acquire(request_)
    assert end(desk, handle, ALIVE) == ("T--00",)
    assert not is_had(desk)
    desk.state.db.execute("UPDATE ended SET guard = ?", (DEAD.encode(),))
    assert is_had(desk)
    assert left(desk) == 0


def test_what_has_a_guard_and_no_ttl_is_free_when_it_is_ended_once_more(desk: Desk) -> None:
    handle = desk.acquire()
    end(desk, handle, ALIVE)
    assert end(desk, handle, ALIVE) == ()
    assert end(desk, handle) == ("T--00",)
    assert is_had(desk)


def test_who_waits_for_it_learns_when_it_may_be_free(desk: Desk, line: Line) -> None:
    handle = desk.acquire()
    assert line.come("waits", Request("T")).look_again_at is None
    line.woken()
    end(desk, handle, ALIVE)
    assert line.woken() == ["waits", "witness"]
    assert line.gets("waits") is None
    assert ALIVE in line.watched("waits")


def test_guards_are_those_of_a_pool_or_of_all(desk: Desk) -> None:
    desk.pool(1, "U")
    store = LocalStore(desk.state, lost=lambda *_: None, clock=desk.time.clock)
    ends = LocalEarlyEnds(store)
    other = desk.acquire(Request("U"))
    desk.service.pools.end_early(other.id, ["U--00"], guard=DEAD, reason="")
    end(desk, desk.acquire(), ALIVE)
    assert ends.guards("T") == [ALIVE]
    assert ends.guards("U") == [DEAD]
    assert sorted(ends.guards()) == sorted([ALIVE, DEAD])
    with desk.state.transaction():
        assert not ends.free_what_the_dead_had("T")
        assert ends.free_what_the_dead_had()
    assert ends.guards() == [ALIVE]


def test_what_is_left_of_an_end_before_is_no_hindrance(desk: Desk) -> None:
    desk.state.db.execute("INSERT INTO ended VALUES ('T--00', 'T', 'gone', NULL, 'before')")
    handle = desk.acquire(SHORT)
    (pool,) = desk.service.pools.pools("T")
    assert (pool.resources[0].claim_key, pool.resources[0].ended) == (handle.id, None)
    assert end(desk, handle) == ("T--00",)
    assert left(desk) == 1
    (pool,) = desk.service.pools.pools("T")
    assert (pool.resources[0].claim_key, pool.resources[0].ended) == (handle.id, "asked to")
