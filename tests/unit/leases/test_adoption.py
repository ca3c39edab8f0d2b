"""leasectl.leases.targets: names that no handle here holds, and who may release them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.engines.facts import Pool
from leasectl.errors import BackendUnreachable, CorruptState, LeaseError, NotAllowed, NotFound
from leasectl.leases.acquire import acquire
from leasectl.leases.release import arm, release
from leasectl.leases.service import Service
from leasectl.leases.targets import (
    Holders,
    adopt,
    targets_at,
    targets_of_everything,
    targets_of_names,
    targets_of_scope_test,
    unknown_here,
)
from leasectl.model import Handle, Request, whole
from leasectl.state import shared_leases
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server, change_kind

NAMES = ["T--00", "T--01", "T--02"]


def taken_by(desk: Desk, caller: Caller, count: int = 1) -> Handle:
    """What somebody holds on the server, of whom no record here tells."""
    service = desk.as_caller(caller, URL)
    handle = acquire(service, Request("T", count), patience=Patience(wait_seconds=0))
    with desk.state.transaction():
        service.handles.forget(handle.id, 1)  # it was another state directory's
    return handle


@pytest.fixture
def service(desk: Desk, server: Server) -> Service:
    return desk.as_caller(desk.caller, URL)


def test_on_the_embedded_pool_there_is_nothing_that_no_handle_holds(desk: Desk) -> None:
    desk.pool(1)
    assert adopt(desk.service, ["T--00"], foreign=None) == ()
    assert Holders(desk.service).may_have("T--00")
    assert not Holders(desk.service).may_have("T--01")


def test_who_releases_by_name_alone_is_not_asked_whose_it_is(desk: Desk) -> None:
    service = desk.as_caller(desk.caller, "http://127.0.0.1:1")
    (handle,) = adopt(service, ["a", "b"], foreign=None)
    assert service.handles.require(handle.id) == handle
    assert (handle.names, handle.request.count, handle.adopted_claim) == (("a", "b"), 2, "")
    assert (handle.state, handle.backend) == ("held", "http://127.0.0.1:1")
    assert Holders(service).may_have("whatever")


def test_who_releases_to_holders_alone_takes_nothing_back_from_others(
    desk: Desk, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_kind(monkeypatch, claims_by_identity=True)
    with pytest.raises(NotAllowed, match=r"^no handle in \S+ holds T--00, and madeup://here needs"):
        adopt(service, ["T--00"], foreign=None)


@pytest.mark.parametrize(
    ("is_only_its_holders", "error", "told"),
    [
        (False, NotFound, "no resource a, b; it stays listed in SHARED_DIR"),
        (True, NotAllowed, "holds a, b, and madeup://here needs the handle"),
    ],
)
def test_what_nobody_here_knows_is_another_backends_or_another_handles(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    is_only_its_holders: bool,
    error: type[LeaseError],
    told: str,
) -> None:
    change_kind(monkeypatch, claims_by_identity=is_only_its_holders)
    found = unknown_here(service, ["a", "b"])
    assert type(found) is error
    assert told in str(found)


def test_of_a_pool_that_is_shared_a_name_comes_from_who_is_of_the_same_job(
    desk: Desk, service: Service
) -> None:
    two, one = taken_by(desk, desk.caller, 2), taken_by(desk, desk.caller)
    adopted = adopt(service, NAMES, foreign=None)
    assert [each.names for each in adopted] == [("T--00", "T--01"), ("T--02",)]
    assert [each.adopted_claim for each in adopted] == [two.key, one.key]
    assert [(each.request.count, each.acquisition) for each in adopted] == [(2, 1), (1, 1)]
    assert [release(service, whole(each)) for each in adopted] == [("T--00", "T--01"), ("T--02",)]
    assert adopt(service, NAMES, foreign=None) == []


def test_a_release_of_the_scope_means_what_is_adopted_and_tells_what_is_not(
    desk: Desk, server: Server, tmp_path: Path
) -> None:
    service = desk.as_caller(desk.caller._replace(shared_dir=str(tmp_path)), URL)
    taken_by(desk, Caller("another/2", "host"))
    taken_by(desk, desk.caller)
    shared_leases.add(str(tmp_path), [*NAMES, "gone"])
    found = targets_of_scope_test(service)
    (target,) = found.targets
    assert sorted(found.stale) == ["T--00", "T--02"]
    assert (found.foreign, found.unknown) == (["T--00"], ["gone"])
    assert release(service, target) == ("T--01",)
    assert shared_leases.listed(str(tmp_path)) == ["T--00", "T--02", "gone"]


def test_of_a_lost_record_of_what_its_server_has_not_the_pools_are_not_made_anew(
    service: Service,
) -> None:
    path = Path(service.state.names_path("T-lost"))
    path.write_text("gone--00")
    with pytest.raises(CorruptState, match="was lost, or this file is a copy"):
        targets_at(service, str(path))


def test_what_nobody_holds_is_left_out(desk: Desk, service: Service) -> None:
    first, second = taken_by(desk, desk.caller), taken_by(desk, desk.caller)
    (handle,) = adopt(service, ["T--00", "T--02", "gone"], foreign=None)
    assert (handle.names, handle.adopted_claim) == (("T--00",), first.key)
    release(service, whole(handle))
    (handle,) = adopt(service, NAMES, foreign=None)
    assert (handle.names, handle.adopted_claim) == (("T--01",), second.key)


def test_number_of_reads_does_not_grow_with_the_names(
    desk: Desk, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_by(desk, desk.caller, count=3)
    reads: list[tuple[object, ...]] = []
    kind = type(service.pools)
    read = kind.pools

    def pools(pools: Any, *types: str) -> Sequence[Pool]:
        reads.append(types)
        return read(pools, *types)

    monkeypatch.setattr(kind, "pools", pools)
    assert targets_of_names(service, NAMES[:1])
    few = len(reads)
    assert targets_of_names(service, NAMES[1:])
    assert len(reads) == 2 * few


def test_what_is_another_jobs_is_an_error_or_told(desk: Desk, service: Service) -> None:
    taken_by(desk, Caller("another/2", "host"))
    taken_by(desk, desk.caller)
    with pytest.raises(NotAllowed, match=r"T--00. is held by another/2/"):
        adopt(service, NAMES, foreign=None)
    assert service.handles.active() == []
    foreign: list[str] = []
    (handle,) = adopt(service, NAMES, foreign=foreign)
    assert (foreign, handle.names) == (["T--00"], ("T--01",))


class TestWhatIsNotGivenBack:
    """It was never leased here, so that nothing of it is to stay."""

    @pytest.fixture
    def away(self, server: Server) -> None:
        def fail(names: Sequence[str]) -> None:
            if names != ["T--00"]:
                raise BackendUnreachable("away")

        server.before_release = fail

    def test_is_forgotten(self, desk: Desk, service: Service, away: None) -> None:
        taken_by(desk, desk.caller, count=2)
        (target,) = targets_of_names(service, ["T--00", "T--01"])
        with pytest.raises(BackendUnreachable) as raised:
            release(service, target)
        assert raised.value.released == ("T--00",)
        assert service.handles.active() == []

    def test_stays_where_the_keeper_is_to_give_it_back(
        self, desk: Desk, service: Service, away: None
    ) -> None:
        taken_by(desk, desk.caller, count=2)
        (target,) = targets_of_names(service, ["T--00", "T--01"])
        arm(service, target, 60.0)
        with pytest.raises(BackendUnreachable):
            release(service, target._replace(by="delay"))
        with pytest.raises(BackendUnreachable):
            release(service, target)
        (left,) = service.handles.active()
        assert left.names == ("T--01",)

    def test_is_not_among_all_that_is_held_here(self, desk: Desk, service: Service) -> None:
        taken_by(desk, desk.caller)
        adopt(service, ["T--00"], foreign=None)
        assert targets_of_everything(service) == ([], [])

    def test_comes_after_whoever_holds_a_name_of_the_same_kind(
        self, desk: Desk, service: Service
    ) -> None:
        taken_by(desk, desk.caller)
        adopt(service, ["T--00"], foreign=None)
        desk.pool(1)
        held = desk.acquire()
        assert targets_of_names(service, ["T--00"]) == [whole(held)]
        (target,) = targets_of_names(service, ["T--00"], only_here=True)
        assert service.handles.require(target.handle_id).adopted_claim is not None
