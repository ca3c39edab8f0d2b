"""What the embedded pool tells of itself: of what is on record here, and of what isn't."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.engines.rules.membership import Lifetime, join
from leasectl.leases.release import release
from leasectl.model import Handle, Request, whole
from leasectl.state.directory import State
from leasectl.state.event import Event
from leasectl.state.event_log import StateEventWatch
from leasectl.system.poll import is_readable
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
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
