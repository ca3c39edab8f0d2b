"""leasectl.state.amendments: what a record is told of a handle that goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasectl.model import Handle, ReleaseTarget, Request
from leasectl.state.directory import State
from leasectl.state.handles import (
    Handles,
    change_ttl,
    count_lost_replies,
    note_answer,
    record_renewal,
    remember_release_after,
    seconds_since,
)
from leasectl.state.timers import Timers
from tests.unit.state.held import made


@pytest.fixture
def state(changing: State) -> State:
    """In a transaction, as each of these needs one."""
    return changing


@pytest.fixture
def handle(state: State) -> Handle:
    return made(state, "T-1", acquisition=2)


@pytest.fixture(autouse=True)
def other(state: State, handle: Handle) -> Iterator[Handle]:
    """One of which nothing is said, and which is as it was in the end."""
    other = made(
        state, "T-2", Request("T", ttl_seconds=60.0, release_after_seconds=5.0), acquisition=2
    )
    yield other
    assert Handles(state).require(other.id) == other


def now_of(state: State, handle: Handle) -> Handle:
    return Handles(state).require(handle.id)


class TestATtl:
    def test_is_the_new_one_and_asked_for_or_not(self, state: State, handle: Handle) -> None:
        for seconds, explicit in [(20.0, True), (30.0, False)]:
            change_ttl(state, handle, seconds, explicit=explicit)
            now = now_of(state, handle)
            assert (now.request.ttl_seconds, now.explicit_ttl) == (seconds, explicit)
            assert [each.lease_duration_seconds for each in now.leases] == [seconds]


def test_a_delayed_release_is_part_of_the_request(state: State, handle: Handle) -> None:
    remember_release_after(state, handle, 90.0, None)
    wanted = handle.request._replace(release_after_seconds=90.0)
    assert now_of(state, handle).request == wanted
    remember_release_after(state, handle, 80.0, (60.0, 120.0))
    wanted = wanted._replace(release_after_seconds=80.0, release_between_seconds=(60.0, 120.0))
    assert now_of(state, handle).request == wanted


def test_a_renewal_is_told_of_all_that_it_holds(state: State, handle: Handle) -> None:
    record_renewal(state, handle, 160.0)
    (lease,) = now_of(state, handle).leases
    assert (lease.acquire_time, lease.renew_time) == (100.0, 160.0)


class TestAnAnswer:
    def test_that_is_about_to_tell_of_a_grant_leaves_it_held(
        self, state: State, handle: Handle
    ) -> None:
        count_lost_replies(state, handle, 2)
        Timers(state).arm(ReleaseTarget(handle.id, 2), 9.0)
        assert note_answer(state, handle, confirmed=False)
        assert Timers(state).armed() == []
        assert now_of(state, handle) == handle._replace(unconfirmed=True, lost_replies=2)

    def test_that_has_arrived_leaves_nothing_unknown(self, state: State, handle: Handle) -> None:
        count_lost_replies(state, handle, 2)
        note_answer(state, handle, confirmed=False)
        assert note_answer(state, handle, confirmed=True)
        assert now_of(state, handle) == handle

    def test_of_what_is_released_or_acquired_anew_is_none(
        self, state: State, handle: Handle
    ) -> None:
        assert not note_answer(state, handle._replace(acquisition=1), confirmed=True)
        Handles(state).release(handle, now=8.0)
        assert not note_answer(state, handle, confirmed=True)


def test_how_long_it_has_gone_on_is_known_since_it_was_asked_for(
    state: State, handle: Handle
) -> None:
    assert seconds_since(state, handle.id, "queued", now=10.0) == 5.0
    assert seconds_since(state, handle.id, "granted", now=10.0) == 3.0
    assert seconds_since(state, "T-nobody", "granted", now=10.0) is None
    state.db.execute("UPDATE handle SET queued_at = NULL WHERE id = ?", (handle.id,))
    assert seconds_since(state, handle.id, "queued", now=10.0) is None
