"""leasectl.engines.local.engine"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.engines.contract import TicketGone
from leasectl.errors import NoLease
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Claimant, Request, whole
from leasectl.pools import admin
from leasectl.state.directory import State
from leasectl.state.named_pipe import is_read
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line


def waits(service: Service) -> None:
    with pytest.raises(NoLease):
        acquire(service, Request("T"), patience=Patience(wait_seconds=0.001))


def test_who_waits_once_leaves_no_pipe_and_who_waits_often_reuses_one(state_dir: Path) -> None:
    state = State.open(str(state_dir))
    service = Service(state, Context("local:", caller=Caller("test@host", "host")))
    service.pools.create_pool("T", ["only"])
    announce(service, acquire(service, Request("T"), patience=Patience()))
    pipes = state_dir / "waiters"
    waits(service)
    assert os.listdir(pipes) == []
    waits(service)
    (kept,) = os.listdir(pipes)
    waits(service)
    admin.show(service)  # tidies up, and leaves alone what somebody listens to
    assert os.listdir(pipes) == [kept]
    assert is_read(str(pipes / kept))
    state.close()
    assert os.listdir(pipes) == []


def test_who_is_withdrawn_is_called_and_told_of(desk: Desk, line: Line) -> None:
    desk.pool(1)
    desk.acquire()
    line.come("first", Request("T", name="T--00"))
    desk.time.advance(5.0)
    line.come("second", Request("T", 1))
    line.woken()
    for key, why in (("first", ""), ("second", "no longer")):
        with line.engine.atomic():
            line.engine.withdraw(key, why)
        assert key in line.woken()
        with pytest.raises(TicketGone):
            line.look(key)
    told = [each for each in desk.service.events.read() if each.kind == "gave up"]
    assert [(each.handle, each.names, each.wait_seconds, each.reason) for each in told] == [
        ("first", ("T--00",), 5.0, "released while it waited"),
        ("second", (), 0.0, "no longer"),
    ]
    assert desk.tickets() == []


def test_who_gives_up_takes_away_its_own_ticket_alone(desk: Desk, line: Line) -> None:
    desk.pool(1)
    desk.acquire()
    waiter = line.waiter("first", Request("T"))
    with line.engine.atomic():
        waiter.dequeue()  # it has none yet
        waiter.enqueue()
        waiter.claim()
    line.come("behind", Request("T"))
    line.woken()
    desk.state.db.execute("UPDATE ticket SET owner = 'other' WHERE owner = 'first'")
    with line.engine.atomic():
        waiter.dequeue()
    assert desk.tickets() == [2, 3]
    desk.state.db.execute("UPDATE ticket SET owner = 'first' WHERE owner = 'other'")
    with line.engine.atomic():
        waiter.dequeue("no longer")
    assert desk.tickets() == [3]
    assert line.woken() == ["behind", "witness"]
    told = [each for each in desk.service.events.read() if each.kind == "gave up"]
    assert [(each.ticket, each.reason) for each in told] == [(2, "no longer")]


def test_of_who_is_on_no_record_as_much_is_told_as_its_ticket_says(desk: Desk, line: Line) -> None:
    desk.pool(1)
    desk.acquire()
    desk.put_ticket(7)
    with line.engine.atomic():
        line.engine.withdraw("T-7")
    (told,) = [each for each in desk.service.events.read() if each.kind == "gave up"]
    assert (told.handle, told.ticket, told.acquisition, told.priority) == ("T-7", 7, 0, 0)
    assert (told.holder_identity, told.count) == ("job/1/host/T-7", 1)
    assert told.wait_seconds == desk.time.clock.wall()  # since the epoch, as it was put


def test_one_queues_behind_who_is_there_and_at_the_head_of_what_is_held(
    desk: Desk, line: Line
) -> None:
    desk.pool(1)
    desk.acquire(Request("T", ttl_seconds=60.0))
    now = desk.time.clock.elapsed()
    first = line.come("first", Request("T"))
    second = line.come("second", Request("T"))
    assert (first.is_head, first.is_behind, first.look_again_at) == (True, False, now + 60.0)
    assert (second.is_head, second.is_behind, second.look_again_at) == (False, True, None)
    desk.time.advance(60.0)
    assert line.gets("second") is None
    assert line.gets("first") == ["T--00"]
    assert "second" in line.woken()


def test_who_says_no_process_waits_as_others_do(desk: Desk, line: Line) -> None:
    desk.pool(1)
    handle = desk.acquire()
    waiter = line.engine.waiter(Claimant("key", "holder", Request("T"), None), until=None)
    with line.engine.atomic():
        waiter.enqueue()
        waiter.claim()
    line.come("behind", Request("T"))
    assert line.watched("behind") == []
    (first, _) = desk.service.pools.pools("T")[0].queue
    assert (first.claim_key, first.holder_identity, first.pid) == ("key", "holder", None)
    release(desk.service, whole(handle))
    with line.engine.atomic():
        assert waiter.claim().leases is not None
    waiter.close()


def test_what_has_run_out_of_several_is_not_given_back_with_the_others(
    desk: Desk, line: Line
) -> None:
    desk.pool(3)
    handle = desk.acquire(Request("T", 3, ttl_seconds=60.0))
    now = desk.time.clock.elapsed()
    desk.state.db.execute("UPDATE resource SET expires_at = ? WHERE name = 'T--01'", (now,))
    with line.engine.atomic():
        assert line.engine.free(handle.id) == ("T--00", "T--02")
    told = [each for each in desk.service.events.read() if each.kind in ("lost", "released")]
    assert [(each.kind, each.by, each.names) for each in told] == [
        ("lost", "ttl", ("T--01",)),
        ("released", "ttl", ("T--01",)),
        ("released", "command", ("T--00", "T--02")),
    ]
    assert desk.held() == {}
