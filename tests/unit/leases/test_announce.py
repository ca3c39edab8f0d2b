"""leasectl.leases.delay: why a grant is of no use any more, and how it is taken back."""

from __future__ import annotations

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled, LeaseLost
from leasectl.leases.acquire import acquire
from leasectl.leases.delay import announce, take_back
from leasectl.leases.reacquire import reacquire
from leasectl.leases.release import finish, release
from leasectl.leases.release_forced import release_by_force
from leasectl.model import Handle, Request, whole
from leasectl.system.process import this_process
from tests.kit.desk import Desk

NO_WAIT = Patience(wait_seconds=0)


@pytest.fixture
def granted(desk: Desk) -> Handle:
    desk.pool(2)
    return acquire(desk.service, Request("T", ttl_seconds=60.0), patience=NO_WAIT)


def test_what_ran_out_before_anybody_was_told_is_lost_and_nobody_has_taken_it(
    desk: Desk, granted: Handle
) -> None:
    desk.time.advance(60)
    desk.acquire(Request("T", 2))  # by which that is noticed
    with pytest.raises(LeaseLost, match=r"^the lease of T was lost before it could be used$"):
        announce(desk.service, granted)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_somebody_has_released_is_cancelled(
    desk: Desk, granted: Handle, is_forgotten: bool
) -> None:
    (finish if is_forgotten else release)(
        desk.service,
        granted if is_forgotten else whole(granted),  # type: ignore[arg-type]
    )
    with pytest.raises(Cancelled, match=rf"^handle {granted.id} was released before it could be"):
        announce(desk.service, granted)


def test_what_a_later_acquisition_has_lost_was_released_by_that(
    desk: Desk, granted: Handle
) -> None:
    again = reacquire(desk.service, granted.id, patience=NO_WAIT)
    release_by_force(desk.service, again.names, reason="stuck")
    with pytest.raises(Cancelled):
        announce(desk.service, granted)
    with pytest.raises(LeaseLost, match=r"\(released by force by job/1: stuck\)"):
        announce(desk.service, again)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("note SELECT name, fence, '' FROM resource", id="for what nobody has seen"),
        pytest.param("mark_seen SELECT handle, 1, name, '', '', 0, 1 FROM lease", id="seen"),
    ],
)
def test_what_others_have_asked_back_before_stays_asked_of_the_keeper(
    desk: Desk, granted: Handle, asked: str
) -> None:
    def is_watched() -> list[int]:
        return [watched for (watched,) in desk.state.query("SELECT watched FROM handle")]

    announce(desk.service, desk.acquire(Request("T", release_after_seconds=None)))
    with desk.state.transaction() as db:
        db.execute("UPDATE handle SET watched = (id = ?), ttl_seconds = NULL", (granted.id,))
        db.execute(f"INSERT INTO {asked}")
    announce(desk.service, granted._replace(request=Request("T")))
    assert sorted(is_watched()) == [0, 1]
    with desk.state.transaction() as db:
        db.execute("DELETE FROM note")
        db.execute("DELETE FROM mark_seen")
        db.execute("UPDATE handle SET waiter = 'x:1:1:1' WHERE id = ?", (granted.id,))
    announce(desk.service, granted._replace(request=Request("T")))
    assert is_watched() == [0, 0]


def test_a_guard_stays_unless_there_is_another(desk: Desk, granted: Handle) -> None:
    ours, other = this_process(), this_process()._replace(pid=11)
    announce(desk.service, granted._replace(guard=ours))
    assert desk.record(granted).guard == ours
    announce(desk.service, granted._replace(guard=ours), guard=other)
    assert desk.record(granted).guard == other


def test_what_is_taken_back_is_forgotten_if_nobody_has_ever_known_the_handle(
    desk: Desk, granted: Handle
) -> None:
    take_back(desk.service, granted)
    assert desk.held() == {}
    assert desk.service.handles.load(granted.id) is None


def test_else_it_is_released_and_can_be_reacquired(desk: Desk, granted: Handle) -> None:
    announce(desk.service, granted)
    take_back(desk.service, reacquire(desk.service, granted.id, patience=NO_WAIT))
    assert desk.held() == {}
    assert desk.record(granted).state == "released"
    assert desk.reacquire(granted).acquisition == 3
