"""leasectl.leases.release_forced: what is ended, for whom it is kept how long, and who is told."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.local.pools import LocalPools
from leasectl.errors import (
    Cancelled,
    InvalidRequest,
    LeaseLost,
    NotAllowed,
    NotFound,
    NotSupported,
)
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.release_forced import Forced, check_reason, release_by_force
from leasectl.model import Handle, Request, whole
from leasectl.state.named_pipe import listen
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server

ELSEWHERE = this_process()._replace(pid_namespace=1)


@pytest.fixture
def handle(desk: Desk) -> Handle:
    desk.pool(1)
    handle = desk.acquire()
    announce(desk.service, handle, guard=ELSEWHERE, runner=ELSEWHERE)
    return desk.record(handle)


def test_a_reason_is_one_line_of_some_length() -> None:
    assert check_reason("x" * 200) == "x" * 200
    for bad in ("two\nlines", "x" * 201):
        with pytest.raises(InvalidRequest, match="one printable line"):
            check_reason(bad)


def is_free(desk: Desk) -> bool:
    (pool,) = desk.service.pools.pools()
    return pool.resources[0].lease is None


def test_one_that_listens_is_told_and_waited_for_until_it_ends(desk: Desk, handle: Handle) -> None:
    with contextlib.closing(listen(desk.state.runner_pipe(handle.id))):
        for _ in range(2):
            (forced,) = release_by_force(desk.service, handle.names, reason="")
            assert (forced.has_run, forced.free_in_seconds) == (True, None)
            assert not is_free(desk)
    (forced,) = release_by_force(desk.service, handle.names, reason="")
    assert forced.has_run is False
    assert is_free(desk)


def test_of_what_is_free_nothing_is_said_and_of_each_lease_once(desk: Desk) -> None:
    desk.pool(2)
    handle = desk.acquire()
    found = release_by_force(desk.service, ["T--01", "T--00", "T--00"], reason="")
    assert found == [Forced("T--00", 1, handle.holder_identity, False, 0.0)]
    assert desk.held() == {}
    record = desk.record(handle)
    assert (record.lost, record.lost_reason) == (True, "released by force by job/1")


def test_with_one_that_is_none_of_them_no_lease_is_ended(desk: Desk, handle: Handle) -> None:
    with pytest.raises(NotFound, match='no resource "gone"; list them with: leasectl status'):
        release_by_force(desk.service, [*handle.names, "gone"], reason="")
    assert desk.record(handle) == handle


def test_of_what_is_kept_still_it_is_said_who_had_ended_it_before(desk: Desk) -> None:
    desk.pool(1)
    handle = desk.acquire(Request("T", ttl_seconds=60.0))
    desk.time.advance(20.0)
    first = Forced("T--00", 1, handle.holder_identity, False, 40.0)
    assert release_by_force(desk.service, handle.names, reason="stuck") == [first]
    desk.time.advance(10.0)
    again = release_by_force(desk.service, handle.names, reason="now!")
    told = "released by force by job/1: stuck"
    assert again == [first._replace(free_in_seconds=30.0, ended_before=told)]
    assert desk.record(handle).lost_reason == told


@pytest.mark.parametrize("has_moved_on", [True, False])
def test_whether_anothers_has_a_run_its_own_state_directory_knows(
    desk: Desk, server: Server, has_moved_on: bool
) -> None:
    service = desk.as_caller(desk.caller, URL)
    handle = acquire(service, Request("T"), patience=Patience(wait_seconds=0))
    announce(service, handle, guard=this_process(), runner=this_process())
    with service.state.transaction() as db:
        if has_moved_on:
            db.execute("UPDATE handle SET acquisition = 2")
        else:
            service.handles.forget(handle.id, 1)
    (forced,) = release_by_force(service, handle.names, reason="stuck")
    assert forced == Forced("T--00", 1, handle.holder_identity, None, 7.0)
    if has_moved_on:
        assert service.handles.require(handle.id).lost_reason == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("none:", "doesn't know holders"),
        ("http://127.0.0.1:1", "doesn't know holders"),
        ("boskos+http://127.0.0.1:1", "releases a lease only for its handle"),
    ],
)
def test_who_has_no_pools_ends_nothing_by_force(desk: Desk, url: str, why: str) -> None:
    with pytest.raises(NotSupported, match=f"--force is not supported by .*, which {why}"):
        release_by_force(desk.as_caller(desk.caller, url), ["T--00"], reason="")


def test_what_nobody_got_from_leasectl_is_for_its_holder_to_give_up(
    desk: Desk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pool,) = desk.service.pools.pools()
    (resource,) = pool.resources
    shown = pool._replace(resources=(resource._replace(claim_key=None),))
    monkeypatch.setattr(LocalPools, "pools", lambda *_, **__: (shown,))
    with pytest.raises(NotAllowed, match="which is not leasectl; release it there"):
        release_by_force(desk.service, handle.names, reason="")
    assert desk.record(handle) == handle


def test_who_has_told_nobody_of_its_grant_is_told_that_it_was_lost(desk: Desk) -> None:
    desk.pool(2)
    taken, freed = (
        acquire(desk.service, Request("T"), patience=Patience(wait_seconds=0)) for _ in range(2)
    )
    release_by_force(desk.service, taken.names, reason="stuck")
    with pytest.raises(LeaseLost, match=r"the lease of T was lost \(.*: stuck\) before"):
        announce(desk.service, taken)
    release(desk.service, whole(freed))
    with pytest.raises(Cancelled):
        announce(desk.service, freed)
