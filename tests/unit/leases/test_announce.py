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
from tests.kit.desk import Desk

NO_WAIT = Patience(wait_seconds=0)


@pytest.fixture
def granted(desk: Desk) -> Handle:
    desk.pool(2)
    return acquire(desk.service, Request("T", ttl_seconds=60.0), patience=NO_WAIT)


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
