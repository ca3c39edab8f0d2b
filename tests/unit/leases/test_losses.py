"""leasectl.leases.service: what went away, and what a holder that has done with it gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import claim_key_of
from leasectl.leases.acquire import acquire, announce, reacquire
from leasectl.leases.release import finish, give_up_lost, release
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.state import shared_leases
from leasectl.state.event_log import StateEventLog
from leasectl.state.uses import SeenMark, Uses
from tests.kit.desk import Desk
from tests.kit.made_up_server import NAMES, URL, Server, change_kind

THREE = Request("T", count=3, ttl_seconds=60.0)
NO_WAIT = Patience(wait_seconds=0)


def free(desk: Desk) -> list[str]:
    (pool,) = desk.service.pools.pools("T")
    return [each.name for each in pool.resources if each.lease is None]


class TestWhatWasTakenByForce:
    """On the embedded pool, where it is kept for its holder until its ttl is over."""

    @pytest.fixture
    def handle(self, desk: Desk) -> Handle:
        """Had three, of which the first was taken."""
        desk.pool(3)
        handle = desk.acquire(THREE)
        take(desk, "T--00")
        return handle

    def test_goes_with_a_handle_that_had_nothing_else_and_is_finished(
        self, desk: Desk, handle: Handle
    ) -> None:
        take(desk, "T--01", "T--02")
        assert free(desk) == []
        assert finish(desk.service, handle) == ()
        assert free(desk) == list(NAMES)
        assert desk.service.handles.load(handle.id) is None

    def test_stays_while_its_holder_has_something_else(self, desk: Desk, handle: Handle) -> None:
        give_up_lost(desk.service, whole(handle))
        assert free(desk) == []

    def test_of_a_later_acquisition_is_not_given_up_by_who_is_late(
        self, desk: Desk, handle: Handle
    ) -> None:
        again = desk.reacquire(handle)
        take(desk, *NAMES)
        assert release(desk.service, whole(handle)) == ()
        assert finish(desk.service, handle) == ()
        assert free(desk) == []
        assert desk.record(again).lost
        release(desk.service, whole(again))
        assert free(desk) == list(NAMES)


def take(desk: Desk, *names: str) -> None:
    """End by force what somebody holds, of which its ttl keeps the next away."""
    assert [each.name for each in release_by_force(desk.service, names, reason="")] == list(names)


class TestWhatAStoreTells:
    @pytest.fixture
    def service(self, server: Server, desk: Desk) -> Service:
        return desk.as_caller(desk.caller, URL)

    @pytest.fixture
    def handle(self, service: Service) -> Handle:
        """Holds all three, by its second acquisition."""
        first = acquire(service, Request("T", 3), patience=NO_WAIT)
        announce(service, first)
        again = reacquire(service, first.id, patience=NO_WAIT)
        announce(service, again)
        return service.handles.require(again.id)

    def test_is_of_that_acquisition_alone(self, service: Service, handle: Handle) -> None:
        service.losses.tell(handle._replace(acquisition=1).key, handle.names)
        service.losses.tell("T-others/2", handle.names)
        assert service.handles.require(handle.id) == handle
        service.losses.tell(claim_key_of(handle), ["T--01"])
        record = service.handles.require(handle.id)
        assert (set(record.names), record.lost) == ({"T--00", "T--02"}, True)

    def test_of_who_waits_for_a_server_is_left_to_it(self, service: Service) -> None:
        waiting = new_handle(service, Request("T"), "T-waits")
        with service.state.transaction():
            service.handles.create(waiting, remote=True)
        service.losses.tell(claim_key_of(waiting), [])
        assert service.handles.require("T-waits").state == "acquiring"

    def test_is_an_event_only_where_no_pool_of_ours_has_seen_it(
        self, service: Service, handle: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def told() -> list[tuple[str, tuple[str, ...]]]:
            log = StateEventLog(service.state, backend=URL)
            return [(each.kind, each.names) for each in log.read()]

        service.losses.tell(claim_key_of(handle), ["T--00"])
        assert told() == []
        change_kind(monkeypatch, has_pools=False)
        service.losses.tell(claim_key_of(handle), ["T--01"])
        assert told() == [("lost", ("T--01",)), ("released", ("T--01",))]

    def test_of_what_was_noticed_before_and_the_last_that_was_ready_ends_the_handle(
        self, service: Service, handle: Handle
    ) -> None:
        key = claim_key_of(handle)
        with service.state.transaction():
            Uses(service.state).see(handle, "T--00", SeenMark("0" * 16, "ops", 1e9, True))
        release(service, ReleaseTarget(handle.id, handle.acquisition, ("T--01", "T--02")))
        service.losses.tell(key, ["T--00", "T--01"])
        record = service.handles.require(handle.id)
        assert (record.state, record.names, record.lost) == ("released", (), False)

    def test_that_others_have_noticed_before_is_nothing_new(
        self, service: Service, handle: Handle
    ) -> None:
        with service.state.transaction():
            service.losses.note_gone(handle, ["T--01"])
        record = service.handles.require(handle.id)
        with service.state.transaction():
            service.losses.note_gone(record, ["T--01", "T--77"])
        assert service.handles.require(handle.id) == record


class TestOfTheDead:
    @pytest.mark.parametrize("acquisition", [1, 2])
    def test_who_waited_for_the_embedded_pool_is_forgotten_if_nobody_has_heard_of_it(
        self, desk: Desk, acquisition: int
    ) -> None:
        desk.pool(1)
        waiting = new_handle(desk.service, Request("T"), "T-waits")
        waiting = waiting._replace(acquisition=acquisition)
        with desk.state.transaction():
            desk.service.handles.create(waiting, remote=False)
        desk.service.losses.tell("T-waits", [])
        record = desk.service.handles.load("T-waits")
        assert (record and record.state) == (None if acquisition == 1 else "released")


class TestTheListOfScopeTest:
    @pytest.fixture
    def shared_dir(self, desk: Desk, tmp_path: Path) -> str:
        desk.service = desk.as_caller(Caller("job/1", "host", str(tmp_path)))
        desk.pool(3)
        return str(tmp_path)

    @pytest.fixture
    def handle(self, desk: Desk, shared_dir: str) -> Handle:
        """Holds three, of which two are ready to be taken back."""
        handle = desk.acquire(THREE._replace(scope="test"))
        with desk.state.transaction():
            for name in ("T--00", "T--01"):
                Uses(desk.state).see(handle, name, SeenMark("0" * 16, "ops", 1e9, True))
        return handle

    def test_loses_what_was_taken_back_once_that_is_sure(
        self, desk: Desk, handle: Handle, shared_dir: str
    ) -> None:
        losses = desk.service.losses
        with desk.state.transaction():
            losses.note_gone(handle, ["T--00", "T--02"])
            losses.unlist()
            assert shared_leases.listed(shared_dir) == list(NAMES)
        losses.unlist()
        # What was lost stays in it until somebody releases by it, and hears of that.
        assert shared_leases.listed(shared_dir) == ["T--01", "T--02"]
        record = desk.record(handle)
        assert (record.names, record.lost) == (("T--01",), True)

    def test_keeps_what_is_held_under_it_again(
        self, desk: Desk, handle: Handle, shared_dir: str
    ) -> None:
        losses = desk.service.losses
        desk.service.backend_of(handle).release(handle.id, ("T--00", "T--01"))
        with desk.state.transaction():
            losses.note_gone(handle, ["T--00", "T--01"])
        elsewhere = Path(shared_dir, "elsewhere")
        elsewhere.mkdir()
        for name, folder in [("T--00", shared_dir), ("T--01", str(elsewhere))]:
            desk.service = desk.as_caller(Caller("job/1", "host", folder))
            desk.acquire(Request("T", name=name, scope="test"))
        losses.unlist()
        assert shared_leases.listed(shared_dir) == ["T--00", "T--02"]

    def test_that_can_not_be_written_keeps_nobody_from_going_on(
        self, desk: Desk, handle: Handle, shared_dir: str
    ) -> None:
        with desk.state.transaction():
            desk.service.losses.note_gone(handle, ["T--00"])
        listed = Path(shared_dir, shared_leases.FILE_NAME)
        listed.unlink()
        listed.mkdir()
        desk.service.losses.unlist()
        assert desk.record(handle).names == ("T--01", "T--02")
