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
from leasectl.errors import NotAllowed
from leasectl.model import Request
from leasectl.state.directory import State
from leasectl.state.event import ALL_EVENTS
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.pool_changes import remove_resources
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


def test_what_was_ended_before_it_is_taken_out_is_lost_once(desk: Desk) -> None:
    desk.pool(1)
    handle = desk.acquire()
    desk.service.pools.end_early(handle.id, handle.names, guard=this_process(), reason="")
    remove_resources(desk.service.members, "T", ["T--00"], force=True)
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
        remove_resources(desk.service.members, "T", ["T--00"])
    assert desk.record(handle).lost
    assert desk.held() == {}
    lost = [e for e in desk.service.events.read(ALL_EVENTS) if e.kind == "lost"]
    assert [e.by for e in lost] == ["ttl"]
