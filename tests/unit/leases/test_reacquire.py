"""Delayed releases and further acquisitions of one handle."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import (
    Cancelled,
    InvalidRequest,
    NoLease,
    NotAllowed,
    NotFound,
    StateUnwritable,
)
from leasectl.leases.acquire import announce, reacquire
from leasectl.leases.journal import RecordJournal
from leasectl.leases.recovery import due, recover
from leasectl.leases.release import arm, release
from leasectl.leases.request import drawn
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system.process import this_process
from leasectl.text.naming import reserved_type
from tests.kit.desk import Desk
from tests.kit.forking import ending, fork
from tests.kit.killing import kill_this_process
from tests.kit.pool_changes import remove_resources
from tests.kit.waits import eventually, result_of

LATER = Request("T", release_after_seconds=100.0)


class TestAReacquire:
    def test_changes_nothing_where_the_keeper_that_is_to_release_it_can_not_be_had(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(state: State) -> None:
            raise StateUnwritable("no more processes")

        desk.pool(2)
        handle = desk.acquire(LATER)
        monkeypatch.setattr(keeper_process, "ensure", fail)
        with pytest.raises(StateUnwritable):
            reacquire(desk.service, handle.id, patience=Patience(wait_seconds=0))
        record = desk.record(handle)
        assert (record.state, record.acquisition, record.names) == ("held", 1, handle.names)
        assert desk.held() == {"T--00": handle.id}

    def test_works_again_after_it_timed_out(self, desk: Desk) -> None:
        desk.pool(1)
        first = desk.acquire()
        release(desk.service, whole(first))
        other = desk.acquire()
        for acquisition in (2, 3):
            with pytest.raises(NoLease):
                desk.reacquire(first)
            record = desk.record(first)
            assert (record.state, record.acquisition) == ("released", acquisition)
        assert desk.tickets() == []
        release(desk.service, whole(other))
        assert desk.reacquire(first).acquisition == 4

    def test_that_can_never_be_met_changes_nothing(self, desk: Desk) -> None:
        desk.pool(2)
        first = desk.acquire(Request("T", count=2))
        remove_resources(desk.service.members, "T", ["T--01"], force=True)
        before = desk.record(first)
        with pytest.raises(InvalidRequest):
            desk.reacquire(first)
        assert desk.record(first) == before
        assert desk.held() == {"T--00": first.id}

    def test_for_a_guard_that_has_ended_is_refused(self, desk: Desk) -> None:
        desk.pool(1)
        first = desk.acquire()
        dead = this_process()._replace(start_time=1)
        with desk.state.transaction() as db:
            db.execute("UPDATE handle SET guard = ?", (dead.encode(),))
        with pytest.raises(NotFound, match="the guard of handle"):
            desk.reacquire(first)

    def test_of_work_that_is_done_once_is_refused(self, desk: Desk) -> None:
        work = reserved_type("0" * 64)
        desk.service.pools.create_pool(work, [work])
        first = desk.acquire(Request(work))
        with pytest.raises(NotAllowed, match="use: leasectl once KEY"):
            desk.reacquire(first)
        assert desk.record(first) == first
        assert desk.held() == {work: first.id}

    def test_that_is_killed_while_it_waits_holds_up_nobody(self, desk: Desk) -> None:
        desk.pool(1)
        first = desk.acquire()
        release(desk.service, whole(first))
        other = desk.acquire()
        killed = fork(lambda: reacquire_elsewhere(desk, first))
        eventually(desk.tickets)
        pending = desk.acquire_beside()
        kill(killed)
        release(desk.service, whole(other))
        third = result_of(pending)
        assert desk.record(first).state == "released"
        release(desk.service, whole(third))
        assert desk.reacquire(first).names == ("T--00",)

    def test_that_is_killed_before_it_told_of_the_grant_is_undone(self, desk: Desk) -> None:
        desk.pool(1)
        first = desk.acquire()

        def reacquire_and_die() -> None:
            reacquire_elsewhere(desk, first)
            kill_this_process()

        assert ending(fork(reacquire_and_die)) == -signal.SIGKILL
        assert desk.held() == {"T--00": first.id}
        recover(desk.service)
        assert desk.held() == {}
        assert desk.record(first).state == "released"
        assert desk.reacquire(first).names == ("T--00",)


class TestTwoReacquiresAtOnce:
    def test_the_later_one_gets_the_lease_and_the_earlier_is_told(self, desk: Desk) -> None:
        desk.pool(1)
        first = desk.acquire()
        release(desk.service, whole(first))
        other = desk.acquire()
        earlier = desk.reacquire_beside(first)
        later = desk.reacquire_beside(first)
        with pytest.raises(Cancelled):
            result_of(earlier)
        release(desk.service, whole(other))
        assert result_of(later).acquisition == 3
        assert desk.held() == {"T--00": first.id}

    def test_of_many_exactly_one_holds_in_the_end(self, desk: Desk) -> None:
        desk.pool(2)
        first = desk.acquire()

        def reacquire_and_tell() -> None:
            with contextlib.closing(State.open(str(desk.directory))) as state:
                service = desk.open(state)
                with contextlib.suppress(Cancelled):
                    announce(
                        service, reacquire(service, first.id, patience=Patience(wait_seconds=5))
                    )

        children = [fork(reacquire_and_tell) for _ in range(8)]
        assert [ending(child) for child in children] == [0] * 8
        record = desk.record(first)
        assert (record.state, record.acquisition) == ("held", 9)
        assert desk.held() == {record.names[0]: first.id}
        assert desk.names_file(record) == record.names[0]


class TestADelayedRelease:
    def test_of_what_is_held_back_counts_from_when_it_is_told(self, desk: Desk) -> None:
        desk.pool(1)
        handle = desk.acquire(LATER, start_delay_seconds=5.0)
        assert handle.release_at == desk.time.clock.elapsed() + 105.0
        again = reacquire(desk.service, handle.id, patience=Patience(), start_delay_seconds=7.0)
        assert again.release_at == desk.time.clock.elapsed() + 107.0
        desk.time.advance(106)
        assert due(desk.service) == []
        desk.time.advance(1)
        assert due(desk.service) == [whole(again, by="delay")]

    def test_is_drawn_anew_by_each_where_it_is_between_two_times(self, desk: Desk) -> None:
        desk.pool(1)
        handle = desk.acquire(Request("T", release_between_seconds=(100.0, 200.0)))
        times = set()
        for _ in range(5):
            handle = desk.reacquire(handle)
            after = handle.request.release_after_seconds
            assert after is not None
            assert 100.0 <= after <= 200.0
            assert handle.release_at == desk.time.clock.elapsed() + after
            times.add(after)
        assert len(times) > 1

    @pytest.mark.parametrize("before", [None, (100.0, 200.0)])
    @pytest.mark.parametrize("armed", [None, (20.0, 40.0)])
    def test_that_is_armed_while_one_is_drawn_goes_before_that(
        self,
        desk: Desk,
        before: tuple[float, float] | None,
        armed: tuple[float, float] | None,
    ) -> None:
        desk.pool(1)
        request = Request("T", release_after_seconds=150.0, release_between_seconds=before)
        handle = desk.acquire(request)
        again = handle._replace(request=drawn(handle.request))
        journal = RecordJournal(desk.service, again, again=lambda current: None)
        arm(desk.service, whole(handle), 30.0, between=armed)
        journal.enqueuing()
        found = desk.record(handle).request
        assert (found.release_after_seconds, found.release_between_seconds) == (30.0, armed)
        assert journal.handle.request == found

    @pytest.mark.parametrize("capacity", [1, 2], ids=["same name", "another name"])
    @pytest.mark.parametrize("names", [None, ("T--00",)], ids=["whole", "by name"])
    def test_that_fires_after_a_reacquire_is_void(
        self, desk: Desk, capacity: int, names: tuple[str, ...] | None
    ) -> None:
        """The keeper may have found it due, and get to it only now."""
        desk.pool(capacity)
        handle = desk.acquire()
        late = ReleaseTarget(handle.id, handle.acquisition, names)
        again = desk.reacquire(handle)
        assert release(desk.service, late) == ()
        assert desk.held() == {again.names[0]: handle.id}
        assert desk.names_file(again) == again.names[0]

    @pytest.mark.parametrize("names", [None, ("T--00",)], ids=["whole", "by name"])
    def test_that_fires_in_the_middle_of_a_reacquire_is_void(
        self, desk: Desk, names: tuple[str, ...] | None
    ) -> None:
        desk.pool(1)
        handle = desk.acquire()
        late = ReleaseTarget(handle.id, handle.acquisition, names)
        arm(desk.service, late, 100)
        other = desk.acquire_beside()
        pending = desk.reacquire_beside(handle)
        held_by_other = result_of(other)
        desk.time.advance(100)
        assert due(desk.service) == []
        assert release(desk.service, late) == ()
        assert desk.record(handle).state == "acquiring"
        release(desk.service, whole(held_by_other))
        assert result_of(pending).names == ("T--00",)
        assert release(desk.service, late) == ()
        assert desk.held() == {"T--00": handle.id}


def reacquire_elsewhere(desk: Desk, handle: Handle) -> None:
    """Reacquire in a forked process, without telling."""
    state = State.open(str(desk.directory))
    reacquire(desk.open(state), handle.id, patience=Patience())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert ending(pid) == -signal.SIGKILL
