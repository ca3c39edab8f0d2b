"""A claim beside many cordons and memberships for a time: it looks at no more than it takes."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from leasectl.engines.local import member_rows
from leasectl.engines.local.members import LocalMembers
from leasectl.engines.local.store import LocalStore
from leasectl.engines.pool_admin import Members
from leasectl.engines.rules.membership import Lifetime, cordon, join
from leasectl.errors import InvalidRequest, NoLease
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.system.process import identify
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.forking import ending, fork

MANY = [f"n-{number:03d}" for number in range(300)]
TTL = Lifetime(ttl_seconds=10.0)


@pytest.fixture
def members(desk: Desk) -> Members:
    """A hundred that are cordoned, a hundred that are there for a time, and a hundred others."""
    desk.service.pools.create_pool("T", MANY)
    members = desk.service.members
    members.update(MANY[:100], lambda member, _: cordon(member, is_cordoned=True))
    to_join(members, MANY[100:200], TTL)
    return members


def to_join(members: Members, names: list[str], lives: Lifetime) -> None:
    members.update(names, lambda member, pools: join(member, "T", pools, lifetime=lives))


def test_looks_at_no_other_name(
    desk: Desk, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_look(*_: object) -> None:
        raise AssertionError("all names were looked at")

    with monkeypatch.context() as patch:
        patch.setattr(LocalMembers, "expire", no_look)
        patch.setattr(member_rows, "closed_in", no_look)
        assert desk.acquire(Request("T")).names == ("n-100",)
        assert desk.acquire(Request("T", 2)).names == ("n-101", "n-102")


@pytest.mark.parametrize("after", [10, 11])
def test_takes_nothing_whose_time_is_over(desk: Desk, members: Members, after: float) -> None:
    desk.time.advance(after)
    assert desk.acquire(Request("T")).names == ("n-200",)
    assert len(members.members()) == 200


def test_takes_nothing_whose_process_has_ended(desk: Desk, members: Members) -> None:
    pid = fork(signal.pause)
    to_join(members, ["n-100"], Lifetime(process=identify(pid)))
    os.kill(pid, signal.SIGKILL)
    ending(pid)
    assert desk.acquire(Request("T")).names == ("n-101",)


def test_has_what_is_closed_for_nothing_where_nothing_else_is_free(
    desk: Desk, members: Members
) -> None:
    desk.state.db.execute("UPDATE resource SET closed = 1 WHERE name >= 'n-100'")
    assert desk.acquire(Request("T")).names == ("n-100",)


def test_that_can_not_be_met_is_refused_as_ever(desk: Desk, members: Members) -> None:
    desk.acquire(Request("T"))
    with pytest.raises(NoLease):
        desk.acquire(Request("T", 200))
    with pytest.raises(InvalidRequest, match="of which 100 are unavailable"):
        desk.acquire(Request("T", 201))


def test_what_is_not_due_is_as_it_has_to_be(desk: Desk) -> None:
    """Of all that can stand in the tables, a look changes nothing that isn't found to be due."""
    desk.pool(1)
    desk.pool(1, "U")
    clock = desk.time.clock
    times = (None, clock.elapsed() - 1, clock.elapsed() + 1)
    owners = ((None, 0), (None, 1), ("T-holder", 0))
    states = itertools.product(
        owners, times, (0, 1), (None, "T", "gone"), (0, 1), times, times, "TU"
    )
    memberships = LocalStore(desk.state, lost=lambda *_: None, clock=clock).memberships()
    with desk.state.transaction() as db:
        for number, state in enumerate(states):
            (owner, closed), expires_at, cordoned, moves_to, leaves, ends_at, until, pool = state
            db.execute(
                "INSERT INTO resource (name, type, fence, lease_transitions, owner, closed, "
                "expires_at, labels) VALUES (?, ?, 0, 0, ?, ?, ?, '')",
                (f"n-{number}", pool, owner, closed, expires_at),
            )
            db.execute(
                "INSERT INTO member VALUES (?, NULL, 0, ?, ?, ?, NULL, ?, ?, 1, ?, '', NULL)",
                (f"n-{number}", cordoned, moves_to, leaves, ends_at and 1.0, ends_at, until),
            )
        due = {row["name"] for row in member_rows.read_due(desk.state, "T", clock.elapsed())}
        others = [r for r in member_rows.read_special(desk.state, "T") if r["name"] not in due]
        assert len(due) > 100 < len(others)
        before = db.total_changes
        for row in others:
            memberships._look_at(row)
            assert db.total_changes == before, tuple(row)
        memberships.expire("T")
        left = member_rows.read_due(desk.state, "T", clock.elapsed())
    # Claims that have expired are another's to free, where there is a record of their holder.
    assert not [row["name"] for row in left if row["owner"] != "T-holder"]


@pytest.mark.parametrize("after", [10, 11])
def test_takes_nothing_whose_time_was_over_with_the_lease_of_it(desk: Desk, after: float) -> None:
    """It was free before all others: what has run out is seen to first."""
    desk.pool(1)
    to_join(desk.service.members, ["n"], TTL)
    desk.acquire(Request("T", name="n", ttl_seconds=10.0))
    release(desk.service, whole(desk.acquire(Request("T", name="T--00"))))
    desk.time.advance(after)
    assert desk.acquire(Request("T")).names == ("T--00",)
    assert desk.service.members.members(["n"])[0].pool is None


def test_by_name_nothing_is_had_whose_time_is_over(desk: Desk, members: Members) -> None:
    desk.time.advance(10)
    with pytest.raises(NoLease):
        desk.acquire(Request("T", name="n-100"))
    assert members.members(["n-100"])[0].pool is None
