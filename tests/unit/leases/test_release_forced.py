"""Release by force of what a `run` has that can't be seen: in a container beside this one."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.local.pools import LocalPools
from leasectl.errors import Cancelled, InvalidRequest, LeaseLost, NotAllowed, NotSupported
from leasectl.leases.acquire import acquire
from leasectl.leases.announce import announce
from leasectl.leases.release import release
from leasectl.leases.release_forced import check_reason, release_by_force
from leasectl.model import Handle, Request, whole
from leasectl.state.pipes import listen
from leasectl.system.process import this_process
from tests.kit.desk import Desk

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


def test_one_that_nobody_listens_for_any_more_is_not_waited_for(desk: Desk, handle: Handle) -> None:
    (forced,) = release_by_force(desk.service, handle.names, reason="")
    assert (forced.has_run, forced.free_in_seconds) == (False, 0.0)
    assert is_free(desk)


def test_one_that_expires_is_free_when_it_does_at_the_latest(desk: Desk) -> None:
    desk.pool(2)
    kept, plain = desk.acquire(Request("T", ttl_seconds=60.0)), desk.acquire()
    announce(desk.service, kept, guard=this_process(), runner=None)
    desk.time.advance(20.0)
    found = release_by_force(desk.service, [*kept.names, *plain.names], reason="")
    assert [each.free_in_seconds for each in found] == [40.0, 0.0]


def test_one_that_listens_is_told_and_waited_for_until_it_ends(desk: Desk, handle: Handle) -> None:
    with contextlib.closing(listen(desk.state.runner_pipe(handle.id))):
        for _ in range(2):
            (forced,) = release_by_force(desk.service, handle.names, reason="")
            assert (forced.has_run, forced.free_in_seconds) == (True, None)
            assert not is_free(desk)
    (forced,) = release_by_force(desk.service, handle.names, reason="")
    assert forced.has_run is False
    assert is_free(desk)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("none:", "knows nothing of holders"),
        ("http://127.0.0.1:1", "knows nothing of holders"),
        ("boskos+http://127.0.0.1:1", "takes a lease back only from the handle that has it"),
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
    with pytest.raises(NotAllowed, match="who didn't get it from leasectl, and has to give it up"):
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
