"""What the embedded pool tells of itself: of what is on record here, and of what isn't."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.engines.rules.membership import Lifetime, cordon, join
from leasectl.errors import NoLease
from leasectl.leases.release import release
from leasectl.model import Handle, Request, whole
from leasectl.state.directory import State
from leasectl.state.event import Event
from leasectl.state.event_log import StateEventWatch
from leasectl.system.poll import is_readable
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

REQUEST = Request("T", count=2, priority=7, ttl_seconds=60.0)


@pytest.fixture
def handle(desk: Desk) -> Handle:
    """Holds two since ten seconds ago, by its second acquisition."""
    desk.pool(2)
    handle = desk.reacquire(desk.acquire(REQUEST))
    desk.time.advance(10.0)
    return handle


def told(desk: Desk, kind: str) -> Event:
    """The last that is told of a kind."""
    return [each for each in desk.service.events.read() if each.kind == kind][-1]


def known(handle: Handle) -> dict[str, object]:
    return {
        "type": "T",
        "names": handle.names,
        "fences": tuple(each.fence for each in handle.leases),
        "handle": handle.id,
        "acquisition": 2,
        "holder_identity": handle.holder_identity,
        "count": 2,
        "priority": 7,
        "ticket": 2,
        "grant": 2,
    }


def test_of_an_end_all_is_told_that_was_known_of_the_grant(desk: Desk, handle: Handle) -> None:
    granted = told(desk, "granted")
    assert {key: getattr(granted, key) for key in known(handle)} == known(handle)
    release(desk.service, whole(handle, by="run"))
    ended = told(desk, "released")
    assert {key: getattr(ended, key) for key in known(handle)} == known(handle)
    assert (ended.by, ended.reason, ended.hold_seconds) == ("run", "", 10.0)
    assert ended.time == desk.time.clock.wall()


def test_of_who_gives_up_all_is_told_that_was_known_of_the_request(
    desk: Desk, handle: Handle
) -> None:
    waiting = Request("T", count=2, priority=5)
    with pytest.raises(NoLease):
        desk.acquire(waiting)
    gave_up = told(desk, "gave up")
    assert (gave_up.count, gave_up.priority, gave_up.names) == (2, 5, ())
    assert (gave_up.type, gave_up.ticket, gave_up.acquisition) == ("T", 3, 1)


def test_what_runs_out_is_lost_and_released_by_its_ttl(desk: Desk, handle: Handle) -> None:
    desk.time.advance(50.0)
    desk.acquire(Request("T"))
    for kind in ("lost", "released"):
        ended = told(desk, kind)
        assert {key: getattr(ended, key) for key in known(handle)} == known(handle)
        assert (ended.by, ended.hold_seconds) == ("ttl", 60.0)


def test_of_what_nothing_is_on_record_as_much_is_told_as_is_seen(
    desk: Desk, handle: Handle
) -> None:
    with desk.state.transaction() as db:
        db.execute("DELETE FROM handle")
        db.execute("UPDATE resource SET ticket = NULL, grant_number = NULL")
    with desk.service.atomic():
        assert desk.service.backend_of(handle).release(handle.id, ()) == handle.names
    ended = told(desk, "released")
    unknown = {"acquisition": 0, "priority": 0, "ticket": 0, "grant": 0}
    assert {key: getattr(ended, key) for key in known(handle)} == {**known(handle), **unknown}
    assert ended.hold_seconds == 10.0  # by the wall clock


class TestANameOfAPool:
    def test_that_is_changed_is_told_of_in_words(self, desk: Desk) -> None:
        desk.pool(2)
        members = desk.service.members
        members.update(["T--00"], lambda each, _: cordon(each, is_cordoned=True))
        event = told(desk, "pool changed")
        assert (event.names, event.reason) == (("T--00",), "1 resource cordoned")

    def test_that_is_added_or_removed_by_hand_is_told_of_once(self, desk: Desk) -> None:
        desk.pool(2)
        desk.service.pools.add_resources("T", ["T--02"])
        desk.service.pools.remove_resources("T", ["T--00"], force=False)
        events = [each for each in desk.service.events.read() if each.kind.startswith("pool")]
        assert [(each.kind, each.names) for each in events] == [
            ("pool made", ("T--00", "T--01")),
            ("pool changed", ("T--02",)),
            ("pool changed", ("T--00",)),
        ]

    def test_whose_time_is_over_is_gone_for_who_changes_it(self, desk: Desk) -> None:
        desk.pool(1)
        desk.pool(1, "U")
        members = desk.service.members
        lives = Lifetime(ttl_seconds=5.0)
        members.update(["n"], lambda each, pools: join(each, "T", pools, lifetime=lives))
        desk.time.advance(5.0)
        seen = members.update(["n"], lambda each, _: each).before[0]
        assert seen.pool is None
        # So it may go where it isn't awaited, without having left.
        members.update(["n"], lambda each, pools: join(each, "U", pools, lifetime=lives))
        assert members.members(["n"])[0].pool == "U"


def test_of_who_queues_all_is_told_that_it_asks_for(desk: Desk, line: Line) -> None:
    desk.pool(3)
    desk.acquire(Request("T", 3))
    line.come("named", Request("T", name="T--01", priority=3))
    queued = told(desk, "queued")
    assert (queued.type, queued.names, queued.handle) == ("T", ("T--01",), "named")
    assert (queued.count, queued.priority, queued.ticket) == (1, 3, 2)
    assert (queued.acquisition, queued.holder_identity) == (0, "job/1/host/named")
    line.come("any", Request("T", 2))
    queued = told(desk, "queued")
    assert (queued.names, queued.count, queued.priority, queued.ticket) == ((), 2, 0, 3)


def test_of_a_grant_is_told_how_long_it_was_waited_for(desk: Desk, line: Line) -> None:
    desk.pool(1)
    handle = desk.acquire()
    line.come("waits", Request("T"))
    desk.time.advance(7.0)
    release(desk.service, whole(handle))
    assert line.gets("waits") == ["T--00"]
    granted = told(desk, "granted")
    assert (granted.handle, granted.wait_seconds, granted.ticket, granted.grant) == (
        "waits", 7.0, 2, 2,
    )  # fmt: skip


def test_who_holds_without_a_time_of_grant_has_held_by_the_wall_clock(
    desk: Desk, handle: Handle
) -> None:
    """As granted before a reboot: never for less than no time."""
    desk.state.db.execute("UPDATE handle SET granted_at = NULL")
    desk.time.put_back(30.0)
    release(desk.service, whole(handle))
    assert told(desk, "released").hold_seconds == 0.0


def test_who_follows_is_woken_by_what_is_told_also_who_came_after_a_look(desk: Desk) -> None:
    desk.pool(1)
    other = State.open(str(desk.directory))
    desk.service.pools.pools("T")  # which has seen that nobody follows
    with contextlib.closing(other), contextlib.closing(StateEventWatch(other)) as watch:
        handle = desk.acquire()
        assert is_readable(watch.fd, 0)
        watch.clear()
        assert not is_readable(watch.fd, 0)
        release(desk.service, whole(handle))
        assert is_readable(watch.fd, 0)


def test_of_what_was_had_since_nobody_knows_when_no_time_is_told(
    desk: Desk, handle: Handle
) -> None:
    desk.state.db.execute("UPDATE handle SET granted_at = NULL")
    desk.state.db.execute("UPDATE resource SET acquire_time = NULL")
    with desk.service.atomic():
        assert desk.service.backend_of(handle).release(handle.id, ()) == handle.names
    assert told(desk, "released").hold_seconds == 0.0
