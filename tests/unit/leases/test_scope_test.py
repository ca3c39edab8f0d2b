"""Scope ``test`` and ``$SHARED_DIR/leases``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.errors import NoLease, StateUnwritable
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service, unlist_stale
from leasectl.leases.targets import targets_of_scope_test
from leasectl.model import Handle, Request, whole
from leasectl.state import shared_leases
from leasectl.state.directory import State
from tests.kit.desk import Desk

TEST = Request("T", scope="test")


@pytest.fixture
def shared_dir(desk: Desk, tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    desk.caller = Caller("job/1", "host", str(folder))
    desk.service = desk.open(desk.state)
    return folder


def listed(shared_dir: Path) -> list[str]:
    return shared_leases.listed(str(shared_dir))


def release_scope_test(service: Service) -> list[str]:
    targets, stale, _, _ = targets_of_scope_test(service)
    released = [name for target in targets for name in release(service, target)]
    unlist_stale(service, stale)
    return released


def test_one_that_is_forgotten_with_its_release_leaves_no_name_behind(
    desk: Desk, shared_dir: Path
) -> None:
    desk.pool(1)
    handle = desk.acquire(TEST)
    assert finish(desk.service, handle) == ("T--00",)
    assert listed(shared_dir) == []


def test_a_listed_name_that_is_anothers_by_now_is_only_taken_out(
    desk: Desk, shared_dir: Path, tmp_path: Path
) -> None:
    desk.pool(2)
    (tmp_path / "other").mkdir()
    other = desk.as_caller(Caller("job/2", "host", str(tmp_path / "other")))
    step = desk.acquire()
    elsewhere = acquire(other, TEST, patience=Patience(wait_seconds=0))
    announce(other, elsewhere)
    shared_leases.add(str(shared_dir), [*step.names, *elsewhere.names])
    assert release_scope_test(desk.service) == []
    assert sorted(desk.held().values()) == sorted([step.id, elsewhere.id])
    assert listed(shared_dir) == []


def test_a_lease_that_can_not_be_listed_goes_back(
    desk: Desk, shared_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(1)

    def read_only(shared_dir: str, names: Sequence[str], **_: object) -> None:
        raise StateUnwritable(f"{shared_dir}: Read-only file system")

    monkeypatch.setattr(shared_leases, "add", read_only)
    with pytest.raises(StateUnwritable):
        desk.acquire(TEST)
    assert desk.held() == {}
    assert desk.service.handles.active() == []
    assert list((desk.directory / "handles").iterdir()) == []


def test_a_reacquire_that_got_nothing_takes_out_what_it_gave_back(
    desk: Desk, shared_dir: Path
) -> None:
    desk.pool(1)
    handle = desk.acquire(TEST)
    desk.acquire_beside()
    with pytest.raises(NoLease):
        desk.reacquire(handle)
    assert listed(shared_dir) == []


def acquire_in_between(desk: Desk) -> Handle:
    """What another process does while this one is about to change the list."""
    with contextlib.closing(State.open(str(desk.directory))) as state:
        service = desk.open(state)
        handle = acquire(service, TEST, patience=Patience(wait_seconds=0))
        announce(service, handle)
        return handle


@pytest.mark.parametrize("way", ["handle", "scope", "scope of a stale list"])
def test_a_name_acquired_anew_during_a_release_stays_listed(
    desk: Desk, shared_dir: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The lease is free before its name is out of the list, so another may have it by then."""
    desk.pool(1)
    if way == "scope of a stale list":
        shared_leases.add(str(shared_dir), ["T--00"])
    else:
        first = desk.acquire(TEST)
    remove = shared_leases.remove
    between: list[Handle] = []

    def remove_late(*args: object, **more: object) -> None:
        monkeypatch.setattr(shared_leases, "remove", remove)
        between.append(acquire_in_between(desk))
        remove(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(shared_leases, "remove", remove_late)
    if way == "handle":
        release(desk.service, whole(first))
    else:
        release_scope_test(desk.service)
    assert desk.held() == {"T--00": between[0].id}
    assert listed(shared_dir) == ["T--00"]
    assert release_scope_test(desk.service) == ["T--00"]
