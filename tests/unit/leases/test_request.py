"""What may be asked for, up to the very limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends import kinds
from leasectl.errors import InvalidRequest, StateUnwritable
from leasectl.leases.caller import Caller
from leasectl.leases.request import LARGEST_COUNT, SHORTEST_TTL_SECONDS, new_handle
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.state.handles import renews_itself
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.made_up_backend import KIND

OURS = Caller("job/1", "host")


class TestLimits:
    @pytest.mark.parametrize("count", [1, LARGEST_COUNT])
    def test_so_many_may_be_asked_for(self, desk: Desk, count: int) -> None:
        assert new_handle(desk.service, Request("T", count), "T-1").request.count == count

    @pytest.mark.parametrize("count", [0, -1, LARGEST_COUNT + 1])
    def test_so_many_not(self, desk: Desk, count: int) -> None:
        with pytest.raises(InvalidRequest, match=f"--count {count}:"):
            new_handle(desk.service, Request("T", count), "T-1")

    def test_the_shortest_ttl(self, desk: Desk) -> None:
        new_handle(desk.service, Request("T", ttl_seconds=SHORTEST_TTL_SECONDS), "T-1")
        with pytest.raises(InvalidRequest, match="at least 2s"):
            new_handle(desk.service, Request("T", ttl_seconds=1.99), "T-1")

    def test_one_of_a_name(self, desk: Desk) -> None:
        new_handle(desk.service, Request("T", name="T--00"), "T-1")
        with pytest.raises(InvalidRequest, match="leave out --count"):
            new_handle(desk.service, Request("T", 2, name="T--00"), "T-1")


class TestWhereEveryLeaseRunsOut:
    """On a made-up server whose leases run out after 7 seconds unless they are renewed."""

    @pytest.fixture
    def shared_dir(self, tmp_path: Path) -> Path:
        folder = tmp_path / "shared"
        folder.mkdir()
        return folder

    @pytest.fixture
    def service(self, desk: Desk, shared_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
        monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, KIND))
        return desk.as_caller(OURS._replace(shared_dir=str(shared_dir)), "madeup://here")

    def test_scope_test_needs_a_ttl_for_nobody_renews_it(self, service: Service) -> None:
        with pytest.raises(InvalidRequest, match="--scope test needs --ttl on madeup://here"):
            new_handle(service, Request("T", scope="test"), "T-1")

    def test_with_one_it_is_that(self, service: Service, shared_dir: Path) -> None:
        handle = new_handle(service, Request("T", scope="test", ttl_seconds=60), "T-1")
        assert handle.request.ttl_seconds == 60
        assert handle.shared_dir == str(shared_dir)

    def test_scope_step_gets_that_of_the_server(self, service: Service) -> None:
        handle = new_handle(service, Request("T"), "T-1")
        assert (handle.request.ttl_seconds, handle.shared_dir) == (7, None)

    def test_a_ttl_of_ones_own_goes_before_that(self, service: Service) -> None:
        assert new_handle(service, Request("T", ttl_seconds=9), "T-1").request.ttl_seconds == 9

    def test_it_is_renewed_unless_it_is_ones_own_and_nobody_guards_it(
        self, service: Service
    ) -> None:
        own = new_handle(service, Request("T", ttl_seconds=7), "T-1")
        assert not renews_itself(own)
        assert renews_itself(own._replace(guard=this_process()))
        assert renews_itself(own._replace(runner=this_process()))
        assert renews_itself(new_handle(service, Request("T"), "T-1"))
        test = new_handle(service, Request("T", scope="test", ttl_seconds=7), "T-1")
        assert not renews_itself(test)


class TestScopeTest:
    def test_where_nothing_runs_out_it_needs_no_ttl(self, desk: Desk, tmp_path: Path) -> None:
        service = desk.as_caller(OURS._replace(shared_dir=str(tmp_path)))
        handle = new_handle(service, Request("T", scope="test"), "T-1")
        assert handle.request.ttl_seconds is None

    def test_it_needs_a_folder_for_its_list(self, desk: Desk, tmp_path: Path) -> None:
        service = desk.as_caller(OURS._replace(shared_dir=str(tmp_path / "gone")))
        with pytest.raises(StateUnwritable, match="gone is not a directory"):
            new_handle(service, Request("T", scope="test"), "T-1")
        with pytest.raises(InvalidRequest, match="SHARED_DIR"):
            new_handle(desk.service, Request("T", scope="test"), "T-1")
