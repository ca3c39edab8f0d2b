"""What is so of names on the embedded pool, beside versions that know nothing of it."""

from __future__ import annotations

from functools import partial

import pytest

from leasectl.engines.local import member_rows
from leasectl.engines.local.store import LocalStore
from leasectl.engines.pool_admin import Members
from leasectl.engines.rules.membership import (
    Lifetime,
    Member,
    add,
    cordon,
    expect,
    join,
    move,
    set_default,
)
from leasectl.errors import NoLease
from leasectl.leases.release import release
from leasectl.model import Claimant, Lease, Request, whole
from leasectl.state.rows import IS_SPECIAL
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.recorded import record
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

GRACE = 60.0


@pytest.fixture
def members(desk: Desk) -> Members:
    desk.pool(3)
    desk.pool(1, "U")
    return desk.service.members


def to_cordon(members: Members, *names: str) -> None:
    members.update(names, lambda member, _: cordon(member, is_cordoned=True))


def to_move(members: Members, name: str) -> None:
    members.update([name], lambda member, pools: move(member, "U", pools, when_free=True))


def is_closed(desk: Desk, name: str) -> bool:
    ((found,),) = desk.state.query("SELECT closed FROM resource WHERE name = ?", name)
    return bool(found)


def freed_by_a_version_before(desk: Desk, name: str) -> None:
    desk.state.db.execute("DELETE FROM lease WHERE name = ?", (name,))
    desk.state.db.execute(
        "UPDATE resource SET owner = NULL, expires_at = NULL WHERE name = ?", (name,)
    )


class TestWhatNobodyMayHave:
    def test_leaves_nothing_behind_once_all_may_have_it_again(
        self, desk: Desk, members: Members
    ) -> None:
        to_cordon(members, "T--00")
        members.update(["T--00"], lambda member, _: cordon(member, is_cordoned=False))
        assert not is_closed(desk, "T--00")
        assert desk.state.query("SELECT * FROM member") == []


class TestWhatJoinsAsHeld:
    def held(self, desk: Desk, *names: str, key: str = "h-1") -> tuple[Lease, ...]:
        claimant = Claimant(key, f"job/1/host/{key}", Request("T", len(names)))
        record(desk.state, key, claimant.request, now=desk.time.clock.elapsed())
        updated = desk.service.members.update(
            names, lambda member, pools: join(member, "T", pools, lifetime=None), claimant=claimant
        )
        return updated.leases

    def test_is_a_grant_among_the_pools(self, desk: Desk, members: Members) -> None:
        before = desk.acquire().leases
        joined = self.held(desk, "n-1", "n-2")
        after = desk.acquire().leases
        assert [each.name for each in joined] == ["n-1", "n-2"]
        assert [each.grant for each in (*before, *joined, *after)] == [1, 2, 2, 3]
        assert [each.ticket for each in (*before, *joined, *after)] == [1, 2, 2, 3]
        assert desk.held()["n-1"] == desk.held()["n-2"] == "h-1"
        (told,) = [each for each in desk.service.events.read() if each.handle == "h-1"]
        assert (told.kind, told.names, told.wait_seconds) == ("granted", ("n-1", "n-2"), 0.0)

    def test_may_be_what_the_last_holder_has_lost_by_now(
        self, desk: Desk, members: Members
    ) -> None:
        members.update(["n"], lambda member, pools: join(member, "T", pools, lifetime=None))
        desk.acquire(Request("T", name="n", ttl_seconds=60.0))
        desk.time.advance(60.0)
        (lease,) = self.held(desk, "n", key="h-2")
        assert (lease.holder_identity, lease.fence) == ("job/1/host/h-2", 2)


def test_whether_and_when_one_ends_is_known(desk: Desk, members: Members) -> None:
    store = LocalStore(desk.state, lost=lambda *_: None, clock=desk.time.clock)
    stays = store.memberships()

    def joins(name: str, lifetime: Lifetime | None) -> None:
        members.update([name], lambda member, pools: join(member, "T", pools, lifetime=lifetime))

    joins("n-1", None)
    assert (stays.any_ends(), stays.next_end(), stays.processes()) == (False, None, [])
    joins("n-2", Lifetime(this_process()))
    assert (stays.any_ends(), stays.next_end(), stays.processes()) == (
        True,
        None,
        [this_process()],
    )
    now = desk.time.clock.elapsed()
    joins("n-3", Lifetime(ttl_seconds=60.0))
    joins("n-4", Lifetime(ttl_seconds=30.0))
    assert stays.next_end() == now + 30.0
    joins("n-2", None)
    assert (stays.any_ends(), stays.processes()) == (True, [])


class TestAHoldBack:
    def test_ends_with_a_reboot(self, desk: Desk, members: Members) -> None:
        members.change_belonging(partial(set_default, pool_type="U", grace_seconds=GRACE))
        members.update(["n"], lambda member, pools: add(member, "U", pools))
        desk.acquire(Request("U"))
        with pytest.raises(NoLease):
            desk.acquire(Request("U"))
        desk.state.db.execute("UPDATE member SET held_back_until = 0")
        desk.state.db.execute("UPDATE resource SET expires_at = 0 WHERE expires_at IS NOT NULL")
        assert desk.acquire(Request("U")).names == ("n",)

    def test_is_over_at_its_instant_and_told_to_who_waits(
        self, desk: Desk, members: Members, line: Line
    ) -> None:
        members.change_belonging(partial(set_default, pool_type="U", grace_seconds=GRACE))
        members.update(["n"], lambda member, pools: add(member, "U", pools))
        desk.acquire(Request("U"))
        line.come("first", Request("U"))
        line.come("second", Request("U"))
        line.woken()
        desk.time.advance(GRACE - 1)
        members.members()
        assert line.woken() == []
        desk.time.advance(1)
        members.members()
        assert line.woken() == ["first", "witness"]
        assert line.gets("first") == ["n"]

    def test_is_over_as_somebody_has_it_belong_there(self, desk: Desk, members: Members) -> None:
        members.change_belonging(partial(set_default, pool_type="U", grace_seconds=GRACE))
        members.update(["n", "m"], lambda member, pools: add(member, "U", pools))
        desk.time.advance(1)
        # What is so of it beside that doesn't make it wait anew.
        members.update(["m"], lambda each, _: each._replace(properties=(("zone", "eu"),)))
        members.update(["n"], lambda member, pools: join(member, "U", pools, lifetime=None))
        (pool,) = desk.service.pools.pools("U")
        assert [(each.name, each.held_back_seconds) for each in pool.resources] == [
            ("U--00", None),
            ("m", GRACE - 1),
            ("n", None),
        ]
        assert desk.acquire(Request("U", 2)).names == ("U--00", "n")


class TestALifetime:
    def test_that_ends_by_itself_is_told_to_who_sees_to_it(
        self, desk: Desk, members: Members, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken: list[str] = []
        monkeypatch.setattr(desk.state, "wake", woken.append)
        members.update(["n"], lambda member, pools: add(member, "U", pools))
        assert desk.state.witness_pipe not in woken
        lives = Lifetime(ttl_seconds=10.0)
        members.update(["m"], lambda member, pools: join(member, "U", pools, lifetime=lives))
        assert desk.state.witness_pipe in woken

    def test_is_over_at_its_instant_for_who_asks_for_names(
        self, desk: Desk, members: Members
    ) -> None:
        lives = Lifetime(ttl_seconds=10.0)
        members.update(["n"], lambda member, pools: join(member, "U", pools, lifetime=lives))
        desk.time.advance(9)
        assert members.members(["n"])[0].pool == "U"
        desk.time.advance(1)
        assert members.members(["n"]) == (Member("n"),)
        assert members.members() == members.members(["T--00", "T--01", "T--02", "U--00"])

    def test_begins_anew_for_one_that_joins_again_and_not_as_else_changes(
        self, desk: Desk, members: Members
    ) -> None:
        lives = Lifetime(ttl_seconds=10.0)

        def left() -> float | None:
            (pool,) = desk.service.pools.pools("U")
            return pool.resources[1].leaves_in_seconds

        members.update(["n"], lambda member, pools: join(member, "U", pools, lifetime=lives))
        desk.time.advance(4)
        to_cordon(members, "n")
        assert left() == 6.0
        members.update(["n"], lambda member, pools: join(member, "U", pools, lifetime=lives))
        assert left() == 10.0


class TestWhatIsPutRight:
    """As `doctor` has it done, of names that were edited by hand."""

    def put_right(self, desk: Desk, name: str) -> None:
        store = LocalStore(desk.state, lost=lambda *_: None, clock=desk.time.clock)
        with desk.state.transaction():
            store.memberships().put_right(name)

    def test_is_had_again_where_nothing_is_said_against_it(
        self, desk: Desk, members: Members
    ) -> None:
        desk.state.db.execute("UPDATE resource SET closed = 1 WHERE name = 'T--00'")
        assert member_rows.closed_for_nothing(desk.state) == ["T--00"]
        self.put_right(desk, "T--00")
        assert member_rows.closed_for_nothing(desk.state) == []
        assert not is_closed(desk, "T--00")

    def test_is_closed_where_it_is_cordoned(self, desk: Desk, members: Members) -> None:
        to_cordon(members, "T--00")
        freed_by_a_version_before(desk, "T--00")
        self.put_right(desk, "T--00")
        assert is_closed(desk, "T--00")

    def test_goes_where_it_was_to_go(self, desk: Desk, members: Members) -> None:
        desk.acquire(Request("T", name="T--00"))
        to_move(members, "T--00")
        freed_by_a_version_before(desk, "T--00")
        self.put_right(desk, "T--00")
        ((pool,),) = desk.state.query("SELECT type FROM resource WHERE name = 'T--00'")
        assert pool == "U"

    def test_goes_nowhere_where_that_pool_is_gone(self, desk: Desk, members: Members) -> None:
        handle = desk.acquire(Request("T", name="T--00"))
        to_move(members, "T--00")
        desk.state.db.execute("DELETE FROM resource WHERE type = 'U'")
        desk.state.db.execute("DELETE FROM pool WHERE type = 'U'")
        self.put_right(desk, "T--00")
        assert member_rows.going_nowhere(desk.state) == []
        assert members.members(["T--00"]) == (Member("T--00", "T", holder=handle.holder_identity),)


class TestWhoWaits:
    def test_is_woken_as_something_comes_to_its_pool(
        self, desk: Desk, members: Members, line: Line
    ) -> None:
        """One for each of what has come."""
        desk.acquire(Request("U"))
        for key in ("first", "second", "third"):
            line.come(key, Request("U"))
        line.woken()
        members.update(["T--00"], lambda member, pools: move(member, "U", pools, when_free=True))
        assert line.woken() == ["first", "witness"]
        assert line.gets("first") == ["T--00"]
        assert line.woken() == ["second"]

    def test_hears_of_what_is_free_beside_what_is_not_to_be_had(
        self, desk: Desk, members: Members, line: Line
    ) -> None:
        """Of one release; nobody is told of what is cordoned."""
        handle = desk.acquire(Request("T", 3))
        line.come("cordoned", Request("T", name="T--00"))
        line.come("free", Request("T", name="T--01"))
        to_cordon(members, "T--00")
        line.look("cordoned")
        line.woken()
        release(desk.service, whole(handle))
        assert line.woken() == ["free", "witness"]
        assert line.gets("free") == ["T--01"]
        assert line.gets("cordoned") is None

    def test_looks_by_itself_when_something_may_come_or_go(
        self, desk: Desk, members: Members, line: Line
    ) -> None:
        """As a lease runs out elsewhere, or a name's time is over."""
        now = desk.time.clock.elapsed()
        desk.acquire(Request("U"))
        desk.acquire(Request("T", name="T--00", ttl_seconds=60.0))
        assert line.come("waits", Request("U")).look_again_at is None
        to_move(members, "T--00")
        assert line.look("waits").look_again_at == now + 60.0
        lives = Lifetime(ttl_seconds=50.0)
        members.update(["n"], lambda each, pools: join(each, "U", pools, lifetime=lives))
        assert line.gets("waits") == ["n"]
        assert line.come("too", Request("U")).look_again_at == now + 50.0
        desk.time.advance(60.0)
        assert line.gets("too") == ["T--00"]


def test_what_a_version_before_took_out_is_known_by_what_is_expected_of_it(
    desk: Desk, members: Members
) -> None:
    to_cordon(members, "T--00")
    members.update(["T--00"], lambda member, pools: expect(member, "T", pools))
    desk.state.db.execute("DELETE FROM resource WHERE name = 'T--00'")
    assert members.members(["T--00"]) == (Member("T--00", expected="T"),)
    assert member_rows.left_over(desk.state) == ["T--00"]
    assert member_rows.said_of(desk.state) == (Member("T--00", expected="T"),)
    store = LocalStore(desk.state, lost=lambda *_: None, clock=desk.time.clock)
    with desk.state.transaction():
        store.memberships().put_right("T--00")
    assert member_rows.left_over(desk.state) == []
    assert members.members(["T--00"]) == (Member("T--00", expected="T"),)


def test_whether_any_name_is_special_is_asked_of_an_index(desk: Desk) -> None:
    sql = f"EXPLAIN QUERY PLAN SELECT EXISTS (SELECT 1 FROM member WHERE {IS_SPECIAL})"
    assert any("member_special" in row["detail"] for row in desk.state.query(sql))
