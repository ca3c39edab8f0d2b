"""What may be asked for, up to the very limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import Context
from leasectl.errors import InvalidRequest, NotSupported, StateUnwritable
from leasectl.leases.journal import RecordJournal
from leasectl.leases.request import check_request, new_handle
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.state.handles import renews_itself
from leasectl.system.process import this_process
from leasectl.text.durations import draw_between
from tests.kit.desk import Desk
from tests.kit.made_up_backend import register_made_up

OURS = Caller("job/1", "host")


class TestLimits:
    @pytest.mark.parametrize("count", [1, 1_000_000])
    def test_so_many_may_be_asked_for(self, desk: Desk, count: int) -> None:
        assert new_handle(desk.service, Request("T", count), "T-1").request.count == count

    @pytest.mark.parametrize("count", [0, -1, 1_000_001])
    def test_so_many_not(self, desk: Desk, count: int) -> None:
        with pytest.raises(InvalidRequest, match=f"--count {count}:"):
            new_handle(desk.service, Request("T", count), "T-1")

    def test_the_shortest_ttl(self, desk: Desk) -> None:
        new_handle(desk.service, Request("T", ttl_seconds=2.0), "T-1")
        with pytest.raises(InvalidRequest, match="at least 2s"):
            new_handle(desk.service, Request("T", ttl_seconds=1.99), "T-1")

    def test_one_of_a_name(self, desk: Desk) -> None:
        new_handle(desk.service, Request("T", name="T--00"), "T-1")
        with pytest.raises(InvalidRequest, match="leave out --count"):
            new_handle(desk.service, Request("T", 2, name="T--00"), "T-1")


def test_how_long_to_hold_a_lease_back_is_drawn_up_to_the_longest() -> None:
    assert draw_between(0.0, 0.0) == 0.0
    drawn = {draw_between(0.0, 0.5) for _ in range(9)}
    assert len(drawn) > 1
    assert 0.0 <= min(drawn) < max(drawn) <= 0.5


class TestWhereAServerHasOneTtlForAll:
    """On Boskos, whose reaper takes back what hasn't been renewed for ten minutes."""

    URL = "boskos+http://127.0.0.1:1?expire=10m"

    @pytest.mark.parametrize("ttl", [None, 600.0])
    def test_a_request_has_a_little_less(self, desk: Desk, ttl: float | None) -> None:
        service = desk.as_caller(OURS, self.URL)
        handle = new_handle(service, Request("T", ttl_seconds=ttl), "T-1")
        assert handle.request.ttl_seconds == 599.0

    def test_another_can_not_be_asked_for(self) -> None:
        asked = Request("T", ttl_seconds=601.0)
        with pytest.raises(NotSupported, match="use --ttl 10m, or leave --ttl out"):
            check_request(asked, None, Context(self.URL, caller=OURS))


class TestWhereEveryLeaseRunsOut:
    """On a made-up server whose leases run out after 7 seconds unless they are renewed."""

    @pytest.fixture
    def shared_dir(self, tmp_path: Path) -> Path:
        folder = tmp_path / "shared"
        folder.mkdir()
        return folder

    @pytest.fixture
    def service(self, desk: Desk, shared_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
        register_made_up(monkeypatch)
        return desk.as_caller(OURS._replace(shared_dir=str(shared_dir)), "madeup://here")

    def test_scope_test_needs_a_ttl_for_nobody_renews_it(self, service: Service) -> None:
        with pytest.raises(InvalidRequest, match="--scope test needs --ttl on madeup://here"):
            new_handle(service, Request("T", scope="test"), "T-1")

    def test_with_one_it_is_that(self, service: Service, shared_dir: Path) -> None:
        handle = new_handle(service, Request("T", scope="test", ttl_seconds=60), "T-1")
        assert handle.request.ttl_seconds == 60
        assert handle.shared_dir == str(shared_dir)

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
    def test_it_needs_a_folder_for_its_list(self, desk: Desk, tmp_path: Path) -> None:
        service = desk.as_caller(OURS._replace(shared_dir=str(tmp_path / "gone")))
        with pytest.raises(StateUnwritable, match="gone is not a directory"):
            new_handle(service, Request("T", scope="test"), "T-1")
        with pytest.raises(InvalidRequest, match="SHARED_DIR"):
            new_handle(desk.service, Request("T", scope="test"), "T-1")


class TestACheckAlone:
    """What can't be meant is refused before anything is opened, or a command's work begun."""

    @pytest.mark.parametrize(
        ("request_", "refusal"),
        [
            (Request("T", 0), "--count 0"),
            (Request("T", 2, name="T--00"), "leave out --count"),
            (Request("T", name="T--00", where=(("region", "here", True),)), "leave out --where"),
            (Request("T", scope="test"), "SHARED_DIR"),
            (Request("T", other_types=("T",)), "-t T -t T: name each pool once"),
            (Request("T", 2, other_types=("U",)), "-t T -t U means one lease"),
            (Request("T", other_types=("T",), needs_all=True), "-t T -t T: name each pool once"),
            (Request("T", name="T--00", other_types=("U",)), "T--00 is in one pool"),
            (Request("T", other_types=("U",) * 16), "give -t at most 16 times"),
        ],
    )
    def test_refuses_what_makes_no_sense(self, request_: Request, refusal: str) -> None:
        with pytest.raises(InvalidRequest, match=refusal):
            check_request(request_, None, Context("local:", caller=OURS))

    def test_lets_pass_what_does(self) -> None:
        types = tuple(f"T{number}" for number in range(1, 16))
        for request in (Request("T"), Request("T", name="T--00"), Request("T", other_types=types)):
            check_request(request, 0.0, Context("local:", caller=OURS))

    @pytest.mark.parametrize(
        ("request_", "wait"),
        [(Request("T", name="a"), None), (Request("T"), 0.0)],
        ids=["name", "wait"],
    )
    def test_refuses_what_its_backend_can_not_do(
        self, request_: Request, wait: float | None
    ) -> None:
        with pytest.raises(NotSupported, match="not supported by the lease proxy"):
            check_request(request_, wait, Context("http://127.0.0.1:9", caller=OURS))
        check_request(Request("T"), None, Context("http://127.0.0.1:9", caller=OURS))

    @pytest.mark.parametrize(
        "request_", [Request("T", other_types=("U",)), Request("T", on_reclaim="release")]
    )
    def test_refuses_what_only_pools_can_do_where_there_are_none(self, request_: Request) -> None:
        with pytest.raises(NotSupported):
            check_request(request_, None, Context("http://127.0.0.1:9", caller=OURS))
        for url in ("local:", "none:"):
            check_request(request_, None, Context(url, caller=OURS))


class TestWhoStandsInTheQueue:
    def test_is_the_next_acquisition_by_this_process(self, desk: Desk) -> None:
        handle = new_handle(desk.service, Request("T"), "T-1")
        first = RecordJournal(desk.service, handle).claimant()
        assert (first.acquisition, first.process) == (1, this_process())
        again = RecordJournal(desk.service, handle, again=lambda current: None).claimant()
        assert again == first._replace(acquisition=2)

    def test_is_shown_with_the_process_that_the_lease_is_for(self, desk: Desk) -> None:
        handle = new_handle(desk.service, Request("T"), "T-1")
        guard, runner = this_process()._replace(pid=11), this_process()._replace(pid=12)
        shown = [
            RecordJournal(desk.service, each).claimant().holder_pid
            for each in (
                handle,
                handle._replace(guard=guard),
                handle._replace(runner=runner),
                handle._replace(guard=guard, runner=runner),
            )
        ]
        assert shown == [None, 11, 12, 11]

    @pytest.mark.parametrize(("after", "shown"), [(None, None), (60.0, 65.0)])
    def test_is_shown_with_its_release_counted_from_the_grant(
        self, desk: Desk, after: float | None, shown: float | None
    ) -> None:
        handle = new_handle(desk.service, Request("T", release_after_seconds=after), "T-1")
        held_back = RecordJournal(desk.service, handle, start_delay_seconds=5.0).claimant()
        assert held_back.request.release_after_seconds == shown
        at_once = RecordJournal(desk.service, handle).claimant()
        assert at_once.request.release_after_seconds == after
