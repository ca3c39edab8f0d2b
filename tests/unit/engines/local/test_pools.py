"""leasectl.engines.local.pools: what a change of an embedded pool leaves, and what it tells."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.queues import LocalQueues
from leasectl.engines.rules.membership import move, set_default
from leasectl.errors import LeaseError, NoLease, NotAllowed, NotFound
from leasectl.model import Claimant, Request
from leasectl.state.directory import State
from leasectl.state.event import ALL_EVENTS
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.recorded import record
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

SETTINGS = PoolSettings(pace_seconds=5.0, aging_seconds=60.0)


def told(desk: Desk) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Of each event of pools what it is, of which pool, about which names and in which words."""
    events = desk.service.events.read(ALL_EVENTS)
    return [(e.kind, e.type, e.names, e.reason) for e in events if e.kind.startswith("pool ")]


def rows_of(state: State, pool_type: str) -> dict[str, int]:
    """How many rows tell of a pool, by table."""
    found = {}
    for (table,) in state.query("SELECT name FROM sqlite_master WHERE type = 'table'"):
        columns = {row["name"] for row in state.query(f"PRAGMA table_info({table})")}
        if "type" in columns and table not in ("handle", "event"):
            ((count,),) = state.query(f"SELECT count(*) FROM {table} WHERE type = ?", pool_type)
            if count:
                found[table] = count
    return found


def test_a_pool_that_is_deleted_leaves_no_row(desk: Desk) -> None:
    pools, members = desk.service.pools, desk.service.members
    pools.create_pool("T", ["T--00"], settings=SETTINGS)
    desk.pool(1, "U")
    members.change_belonging(lambda before: set_default(before, "T", 60.0))
    held = desk.acquire(Request("U"))
    members.update(["U--00"], lambda each, known: move(each, "T", known, when_free=True))
    ended = desk.acquire()
    pools.end_early(ended.id, ended.names, guard=this_process(), reason="")
    desk.put_ticket(7)
    queues = LocalQueues(desk.state, lost=lambda *_: None, clock=desk.time.clock)
    with desk.state.transaction():
        queues.order("T").complete()
        (ticket,) = queues.up_to("T", 7)
        suspend(queues, "T", ticket)
    before = rows_of(desk.state, "T")
    assert set(before) >= {
        "pool", "resource", "ticket", "ranked_ticket", "suspended", "pool_setting", "default_pool",
        "ended",
    }  # fmt: skip
    pools.delete_pool("T", force=True)
    assert rows_of(desk.state, "T") == {}
    assert members.members(["U--00"])[0].moves_to is None
    assert desk.held() == {"U--00": held.id}
    assert told(desk)[-1] == ("pool deleted", "T", ("T--00",), "")
    (given_up,) = [e for e in desk.service.events.read(ALL_EVENTS) if e.kind == "gave up"]
    assert (given_up.type, given_up.ticket, given_up.handle) == ("T", 7, "T-7")


def test_one_in_use_is_deleted_only_by_force(desk: Desk) -> None:
    desk.pool(1)
    handle = desk.acquire()
    with pytest.raises(NotAllowed, match=r"in use \(1 held, 0 waiting\)"):
        desk.service.pools.delete_pool("T", force=False)
    assert desk.held() == {"T--00": handle.id}


def test_what_is_made_changed_and_removed_is_told(desk: Desk) -> None:
    pools = desk.service.pools
    pools.create_pool("T", ["a", "b"], settings=SETTINGS)
    pools.create_pool("U", [])
    pools.add_resources("T", ["c"])
    pools.remove_resources("T", ["b", "b"], force=False)
    assert pools.change_settings("T", PoolSettings(), seen=SETTINGS)
    assert not pools.change_settings("T", SETTINGS, seen=SETTINGS)
    kinds = [(kind, of, names) for kind, of, names, _ in told(desk)]
    assert kinds == [
        ("pool made", "T", ("a", "b")),
        ("pool made", "U", ()),
        ("pool changed", "T", ("c",)),
        ("pool changed", "T", ("b",)),
        ("pool changed", "T", ()),
    ]
    words = [reason for _, _, _, reason in told(desk)]
    assert words[2:4] == ["1 resource added", "1 resource removed"]
    after, before = words[4].split("; before: ")
    assert "5s" in before
    assert "5s" not in after
    assert [each.type for each in pools.pools()] == ["T", "U"]
    (pool,) = pools.pools("T")
    assert ([each.name for each in pool.resources], pool.settings) == (["a", "c"], PoolSettings())


@pytest.mark.parametrize("names", [["b", "a"], ["c", "c"]])
def test_a_name_is_in_one_pool_and_once(desk: Desk, names: list[str]) -> None:
    pools = desk.service.pools
    pools.create_pool("T", ["a"])
    with pytest.raises(LeaseError, match=f'"{names[1]}".* "T"'):
        pools.add_resources("T", names)
    with pytest.raises(LeaseError):
        pools.create_pool("U", names)
    assert [(each.type, each.capacity) for each in pools.pools()] == [("T", 1)]
    with pytest.raises(LeaseError):
        pools.create_pool("T", [])


def test_nothing_is_removed_where_one_of_them_can_not_be(desk: Desk) -> None:
    desk.pool(3)
    desk.acquire(Request("T", name="T--01"))
    with pytest.raises(LeaseError):
        desk.service.pools.remove_resources("T", ["T--00", "T--01"], force=False)
    (pool,) = desk.service.pools.pools("T")
    assert pool.capacity == 3


def test_when_the_next_grant_is_due_is_told_while_it_is_not(desk: Desk) -> None:
    desk.service.pools.create_pool("T", ["a", "b"], settings=PoolSettings(pace_seconds=5.0))
    desk.acquire()
    desk.time.advance(2.0)
    (pool,) = desk.service.pools.pools("T")
    assert pool.next_grant_in_seconds == 3.0
    with pytest.raises(NoLease):
        desk.acquire()
    desk.time.advance(2.5)
    (pool,) = desk.service.pools.pools("T")
    assert pool.next_grant_in_seconds == 0.5
    desk.time.advance(0.5)
    (pool,) = desk.service.pools.pools("T")
    assert pool.next_grant_in_seconds == 0.0
    desk.acquire()


def test_a_new_pool_stands_in_the_database_itself(desk: Desk, tmp_path: Path) -> None:
    """Its log may be lost with the machine, and could be all that tells of it."""
    desk.pool(2)
    copy = tmp_path / "copy.db"
    shutil.copyfile(desk.state.path("state.db"), copy)
    with contextlib.closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT type, capacity FROM pool").fetchall() == [("T", 2)]


def test_a_queue_has_its_order_from_when_tickets_age(desk: Desk) -> None:
    desk.pool(1)
    desk.acquire()
    desk.put_ticket(7)
    ranked = "SELECT number FROM ranked_ticket WHERE type = 'T'"
    assert desk.service.pools.change_settings("T", PoolSettings(pace_seconds=5.0))
    assert desk.state.query(ranked) == []
    assert desk.service.pools.change_settings("T", PoolSettings(aging_seconds=60.0))
    assert [row["number"] for row in desk.state.query(ranked)] == [7]


def test_of_a_pool_that_is_not_there_nothing_can_be_changed(desk: Desk) -> None:
    desk.pool(1)
    pools = desk.service.pools
    for change in (
        lambda: pools.change_settings("U", SETTINGS),
        lambda: pools.add_resources("U", ["a"]),
        lambda: pools.remove_resources("U", [], force=True),
        lambda: pools.delete_pool("U", force=True),
    ):
        with pytest.raises(NotFound, match="U"):
            change()
    assert [kind for kind, *_ in told(desk)] == ["pool made"]
    assert rows_of(desk.state, "U") == {}


def test_who_waits_looks_as_the_pool_grants_in_another_way_and_as_it_is_deleted(
    desk: Desk, line: Line
) -> None:
    desk.pool(1)
    desk.acquire()
    for key in ("first", "second"):
        line.come(key, Request("T"))
    line.woken()
    desk.service.pools.change_settings("T", SETTINGS)
    assert line.woken() == ["first", "second", "witness"]
    with pytest.raises(NotAllowed, match=r"1 held, 2 waiting"):
        desk.service.pools.delete_pool("T", force=False)
    desk.service.pools.delete_pool("T", force=True)
    assert line.woken() == ["first", "second", "witness"]


@pytest.mark.parametrize("has_looked", [True, False])
def test_who_waits_as_its_pool_is_deleted_and_made_anew_is_told_that_it_is_gone(
    desk: Desk, line: Line, has_looked: bool
) -> None:
    desk.pool(1)
    desk.acquire()
    record(desk.state, "k", Request("T"), now=0.0)
    waiter = line.engine.waiter(Claimant("k", "job/k", Request("T"), acquisition=1), until=None)
    with line.engine.atomic():
        waiter.enqueue()
    with line.engine.atomic():
        assert not has_looked or waiter.claim().leases is None
    desk.service.pools.delete_pool("T", force=True)
    desk.pool(1)
    told = pytest.raises(NotFound, match='pool "T" was deleted and created again while')
    with told, line.engine.atomic():
        waiter.claim()


def test_one_for_which_somebody_waits_is_in_use(desk: Desk) -> None:
    desk.pool(1)
    desk.put_ticket(1)
    with pytest.raises(NotAllowed, match=r"in use \(0 held, 1 waiting\)"):
        desk.service.pools.delete_pool("T", force=False)
    desk.state.db.execute("DELETE FROM ticket")
    desk.service.pools.delete_pool("T", force=False)
    assert desk.service.pools.pools() == ()


def test_what_is_taken_out_by_force_is_lost_to_its_holder_and_released(desk: Desk) -> None:
    desk.pool(2)
    handle = desk.acquire(Request("T", 2))
    desk.service.pools.remove_resources("T", ["T--01"], force=True)
    assert desk.held() == {"T--00": handle.id}
    assert desk.record(handle).lost
    ends = [e for e in desk.service.events.read(ALL_EVENTS) if e.kind in ("lost", "released")]
    assert [(e.kind, e.by, e.names, e.handle) for e in ends] == [
        ("lost", "removal", ("T--01",), handle.id),
        ("released", "removal", ("T--01",), handle.id),
    ]


def test_what_was_ended_before_it_is_taken_out_is_lost_once(desk: Desk) -> None:
    desk.pool(1)
    handle = desk.acquire()
    desk.service.pools.end_early(handle.id, handle.names, guard=this_process(), reason="")
    desk.service.pools.remove_resources("T", ["T--00"], force=True)
    ends = [e for e in desk.service.events.read(ALL_EVENTS) if e.kind in ("lost", "released")]
    assert [(e.kind, e.by, e.handle) for e in ends] == [
        ("lost", "force", handle.id),
        ("released", "removal", handle.id),
    ]
    assert rows_of(desk.state, "T") == {"pool": 1}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_has_run_out_and_who_has_died_keep_nothing_from_going(
    desk: Desk, is_deleted: bool
) -> None:
    """Nobody has looked since."""
    desk.pool(1)
    handle = desk.acquire(Request("T", ttl_seconds=60.0))
    desk.put_ticket(7, this_process()._replace(start_time=1))
    desk.time.advance(60.0)
    if is_deleted:
        desk.service.pools.delete_pool("T", force=False)
    else:
        desk.service.pools.remove_resources("T", ["T--00"], force=False)
    assert desk.record(handle).lost
    assert desk.held() == {}
    lost = [e for e in desk.service.events.read(ALL_EVENTS) if e.kind == "lost"]
    assert [e.by for e in lost] == ["ttl"]
