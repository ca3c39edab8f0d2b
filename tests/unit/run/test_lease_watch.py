"""When `run` renews, and when it takes its lease for lost: in a time that moves by hand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.notes import ClaimNews, Note
from leasectl.errors import BackendUnreachable, LockHeld
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.renewal_threads import Renewed
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.run import lease_watch as module
from leasectl.run.lease_watch import LeaseWatch
from leasectl.state.directory import State
from leasectl.state.uses import SeenMark, Uses
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from leasectl.system.request_threads import Outcome
from tests.kit.descriptors import leaving_open
from tests.kit.desk import Desk
from tests.kit.made_up_backend import MadeUpBackend, register_made_up
from tests.kit.pool_changes import add_resources
from tests.kit.reclaiming import Operator

pytestmark = pytest.mark.usefixtures("keeper")

TTL = 30.0
START = 1000.0  # of a manual clock
GIVE_UP = START + TTL - TTL / 5  # so that there is time to end the command


@pytest.fixture
def handle(desk: Desk) -> Handle:
    desk.pool(1)
    return acquired(desk, Request("T", ttl_seconds=TTL))


def acquired(desk: Desk, request: Request) -> Handle:
    handle = acquire(desk.service, request, patience=Patience(), followed=True)
    announce(desk.service, handle, guard=this_process(), runner=this_process())
    return desk.record(handle)


@pytest.fixture
def watch(desk: Desk, handle: Handle) -> Iterator[LeaseWatch]:
    """Over a lease whose last renewal was sent now."""
    watch = LeaseWatch(desk.service, handle, renewed_at=START)
    yield watch
    watch.close()


def expiry(desk: Desk) -> float:
    """When the lease runs out, as the pool has it."""
    ((expires_at,),) = desk.state.query("SELECT expires_at FROM resource")
    return float(expires_at)


def look_at(desk: Desk, watch: LeaseWatch, time: float) -> None:
    """Let it be that time, and look after the lease."""
    desk.time.advance(time - desk.time.clock.elapsed())
    watch.look(())


def fail(*_: object) -> Handle:
    raise BackendUnreachable("etcd doesn't answer")


def test_what_was_taken_before_anybody_could_tell_it_is_lost(desk: Desk) -> None:
    desk.pool(1)
    handle = acquired(desk, Request("T"))
    release_by_force(desk.service, handle.names, reason="stuck")
    with contextlib.closing(LeaseWatch(desk.service, handle, renewed_at=START)) as watch:
        assert watch.is_lost(START)
        assert "stuck" in watch.reason


def test_what_is_just_being_taken_as_it_begins_to_listen_is_lost(desk: Desk) -> None:
    desk.pool(1)
    handle = acquired(desk, Request("T"))
    with contextlib.closing(State.open(str(desk.directory))) as state, state.transaction():
        release_by_force(desk.open(state), handle.names, reason="stuck")
        watch = LeaseWatch(desk.service, handle, renewed_at=START)
        assert not watch.is_lost(START)
    again = watch.until(START)
    assert again is not None
    look_at(desk, watch, again)
    assert watch.is_lost(again)
    watch.close()


def test_a_record_that_is_locked_is_looked_at_again_in_a_second_and_not_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    def locked(_: float) -> contextlib.AbstractContextManager[None]:
        tried.append(desk.time.clock.elapsed())
        raise LockHeld("somebody is stopped")

    desk.pool(1)
    handle = acquired(desk, Request("T"))
    watch = LeaseWatch(desk.service, handle, renewed_at=START)
    within = desk.state.lock_limit.within
    monkeypatch.setattr(desk.state.lock_limit, "within", locked)
    watch.look_at_record()
    assert watch.until(START) == START + 1
    for time in (START + 0.9, START + 1, START + 1.9):
        look_at(desk, watch, time)
    assert tried == [START, START + 1]
    assert watch.until(START) == START + 2
    monkeypatch.setattr(desk.state.lock_limit, "within", within)
    look_at(desk, watch, START + 2)
    assert watch.until(START + 2) is None
    watch.close()


class TestRenewing:
    def test_it_renews_when_a_third_of_the_ttl_has_gone_and_not_before(
        self, desk: Desk, watch: LeaseWatch
    ) -> None:
        assert watch.until(START) == START + TTL / 3
        look_at(desk, watch, START + TTL / 3 - 0.1)
        assert expiry(desk) == START + TTL
        look_at(desk, watch, START + TTL / 3)
        assert expiry(desk) == START + TTL / 3 + TTL
        assert watch.until(START + TTL / 3) == START + 2 * TTL / 3

    def test_it_counts_from_the_sending(self, desk: Desk, handle: Handle) -> None:
        watch = LeaseWatch(desk.service, handle, renewed_at=START - 5)
        assert watch.until(START) == START - 5 + TTL / 3
        assert not watch.is_lost(GIVE_UP - 5.1)
        assert watch.is_lost(GIVE_UP - 5)
        watch.close()

    def test_what_failed_is_tried_again_after_a_second(
        self, desk: Desk, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(module, "renew", fail)
            look_at(desk, watch, START + 10)
            assert watch.until(START + 10) == START + 11
        assert not watch.is_lost(START + 10)
        look_at(desk, watch, START + 11)
        assert expiry(desk) == START + 11 + TTL


class TestLosing:
    def test_a_lease_that_cant_be_renewed_is_lost_before_it_runs_out(
        self, desk: Desk, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "renew", fail)
        look_at(desk, watch, GIVE_UP - 0.1)
        assert not watch.is_lost(GIVE_UP - 0.1)
        assert watch.until(GIVE_UP - 0.1) == GIVE_UP  # it wakes up for that
        assert watch.is_lost(GIVE_UP)
        assert watch.until(GIVE_UP) == GIVE_UP - 0.1 + 1  # and then for the next try only
        assert START + TTL - TTL / 10 < watch.kill_at(GIVE_UP) < START + TTL

    def test_one_that_was_taken_is_lost_at_once(
        self, desk: Desk, handle: Handle, watch: LeaseWatch
    ) -> None:
        desk.service.pools.delete_pool("T", force=True)
        assert not watch.is_lost(START)  # it hasn't looked
        watch.look(watch.fds())
        assert watch.is_lost(START)
        assert watch.kill_at(START) == START + 10.0

    def test_one_that_ran_out_is_found_lost_by_its_renewal(
        self, desk: Desk, watch: LeaseWatch
    ) -> None:
        look_at(desk, watch, START + TTL + 1)
        assert watch.is_lost(START)
        assert watch.until(START) == GIVE_UP  # nothing to renew

    def test_one_that_was_given_back_on_purpose_is_not_lost(
        self, desk: Desk, handle: Handle, watch: LeaseWatch
    ) -> None:
        release(desk.service, whole(handle))
        look_at(desk, watch, START + TTL / 3)
        assert not watch.is_lost(START + 10 * TTL)
        assert watch.until(START + TTL) is None

    @pytest.mark.parametrize("ttl", [None, TTL])
    def test_what_a_command_goes_on_without_is_kept_for_it_no_longer_than_a_ttl(
        self, desk: Desk, ttl: float | None
    ) -> None:
        desk.pool(1)
        handle = acquired(desk, Request("T", ttl_seconds=ttl))
        watch = LeaseWatch(desk.service, handle, renewed_at=START)
        release_by_force(desk.service, handle.names, reason="stuck")
        assert desk.held()
        watch.go_on_without()
        assert bool(desk.held()) == (ttl is not None)
        watch.close()

    def test_what_can_not_be_given_up_yet_is_so_in_a_second(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk.pool(1)
        handle = acquired(desk, Request("T"))
        watch = LeaseWatch(desk.service, handle, renewed_at=START)
        release_by_force(desk.service, handle.names, reason="stuck")
        with monkeypatch.context() as broken:
            broken.setattr(module, "give_up_lost", fail)
            watch.go_on_without()
        assert watch.until(START) == START + 1
        look_at(desk, watch, START + 0.9)
        assert desk.held()
        look_at(desk, watch, START + 1)
        assert desk.held() == {}
        assert watch.until(START + 1) is None
        watch.close()

    def test_who_does_not_heed_term_has_ten_seconds_but_none_past_the_last_moment(
        self, desk: Desk, watch: LeaseWatch
    ) -> None:
        assert watch.last_moment == START + 28.5
        desk.service.pools.delete_pool("T", force=True)
        watch.look(watch.fds())
        assert watch.kill_at(START + 18) == START + 28
        assert watch.kill_at(START + 19) == START + 28.5

    def test_what_nobody_has_renewed_has_run_out_at_its_end(
        self, desk: Desk, handle: Handle, watch: LeaseWatch
    ) -> None:
        assert not watch.has_run_out(START + 29.9)
        assert watch.has_run_out(START + 30)
        release(desk.service, whole(handle))
        assert not watch.has_run_out(START + 30)  # it was given back
        desk.pool(1, "U")
        other = acquired(desk, Request("U"))
        endless = LeaseWatch(desk.service, other, renewed_at=START)
        assert not endless.has_run_out(START + 1e6)
        endless.close()

    def test_a_lock_is_waited_for_no_longer_than_there_is_time(
        self, desk: Desk, handle: Handle, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[float] = []
        within = desk.state.lock_limit.within

        def limit(seconds: float) -> contextlib.AbstractContextManager[None]:
            limits.append(seconds)
            return within(seconds)

        monkeypatch.setattr(desk.state.lock_limit, "within", limit)
        for now in (START + 1, GIVE_UP - 0.125, GIVE_UP, GIVE_UP + 1):
            desk.time.advance(now - desk.time.clock.elapsed())
            watch.look_at_record()
        assert limits == [0.3, 0.125, 0.0, 0.0]
        endless = handle._replace(request=Request("T"))
        LeaseWatch(desk.service, endless, renewed_at=START).close()
        assert set(limits[4:]) == {0.3}

    def test_one_that_is_held_by_another_acquisition_by_now_is_not_what_is_left(
        self, desk: Desk, handle: Handle, watch: LeaseWatch
    ) -> None:
        add_resources(desk.service.members, "T", ["T--01"])
        release(desk.service, whole(handle))
        desk.acquire(Request("T", name="T--00"))
        assert desk.reacquire(handle).names == ("T--01",)
        watch.look_at_record()
        assert watch.held == "T--00"

    def test_what_is_left_when_some_was_given_back_goes_on(self, desk: Desk) -> None:
        desk.pool(2)
        handle = acquired(desk, Request("T", count=2))
        watch = LeaseWatch(desk.service, handle, renewed_at=START)
        release(desk.service, ReleaseTarget(handle.id, handle.acquisition, ("T--00",)))
        watch.look_at_record()
        assert (watch.held, watch.is_lost(START)) == ("T--01", False)
        release(desk.service, whole(handle))
        watch.look_at_record()
        assert watch.held == "T--01"
        watch.close()


def test_nothing_stays_open_of_it_and_nobody_can_wake_it(desk: Desk, handle: Handle) -> None:
    with leaving_open(0):
        watch = LeaseWatch(desk.service, handle, renewed_at=START)
        watch.look(watch.fds())
        watch.close()
    assert os.listdir(desk.state.path("waiters")) == []


def test_whoever_answers_is_told_when_something_may_have_been_noted_and_not_before(
    desk: Desk, handle: Handle, watch: LeaseWatch
) -> None:
    told: list[object] = []
    watch.noted = told.append
    watch.look(())
    assert told == []
    Operator(desk.service.notes).mark(handle)
    assert is_readable(watch.fds()[0], 0)
    watch.look(watch.fds())
    assert told == [None]
    assert not is_readable(watch.fds()[0], 0)


class TestOnAServer:
    """Where a thread renews; this one does so when it is told to."""

    class Threads:
        def __init__(self) -> None:
            self.fd, self._write_fd = os.pipe()
            self.is_closed = False
            self.sent: list[Handle] = []
            self.answers: list[tuple[ReleaseTarget, Outcome[str, Renewed]]] = []
            self.is_open = False

        def open(self, handle: Handle) -> None:
            self.is_open = True

        def send(self, handle: Handle) -> None:
            self.sent.append(handle)

        def outcomes(self) -> list[tuple[ReleaseTarget, Outcome[str, Renewed]]]:
            answers, self.answers = self.answers, []
            return answers

        def close(self) -> None:
            self.is_closed = True
            os.close(self.fd)
            os.close(self._write_fd)

    class ClaimWatch:
        def __init__(self) -> None:
            self.fd, self._write_fd = os.pipe()
            self.is_closed = False
            self.taken = 0
            self.reason = ""
            self.notes: tuple[Note, ...] | None = None

        def take(self) -> ClaimNews:
            self.taken += 1
            return ClaimNews(self.reason, self.notes)

        def close(self) -> None:
            self.is_closed = True
            os.close(self.fd)
            os.close(self._write_fd)

    @pytest.fixture
    def threads(self, monkeypatch: pytest.MonkeyPatch) -> Threads:
        threads = self.Threads()
        monkeypatch.setattr(module, "RenewalThreads", lambda state, *, clock: threads)
        register_made_up(monkeypatch)
        return threads

    @pytest.fixture
    def far(self, desk: Desk, threads: Threads) -> Handle:
        service = desk.as_caller(desk.caller, "madeup://here")
        service.pools.create_pool("T", ["far"])
        handle = acquire(service, Request("T", ttl_seconds=TTL), patience=Patience())
        announce(service, handle, guard=this_process(), runner=this_process())
        return service.handles.require(handle.id)

    @pytest.fixture
    def watch(self, desk: Desk, far: Handle) -> Iterator[LeaseWatch]:
        watch = LeaseWatch(desk.service, far, renewed_at=START)
        yield watch
        watch.close()

    @pytest.fixture
    def claim_watch(self, monkeypatch: pytest.MonkeyPatch) -> ClaimWatch:
        """What tells of changes to a watch that comes after it."""
        claim_watch = self.ClaimWatch()
        monkeypatch.setattr(MadeUpBackend, "open_claim_watch", lambda context, **_: claim_watch)
        return claim_watch

    def test_who_renews_and_who_tells_of_changes_end_with_it(
        self, desk: Desk, far: Handle, threads: Threads, claim_watch: ClaimWatch
    ) -> None:
        LeaseWatch(desk.service, far, renewed_at=START).close()
        assert threads.is_open, "the thread starts before the command, which may leave no process"
        for each in (threads, claim_watch):
            assert each.is_closed

    def test_it_renews_at_once_when_told_of_a_change_and_not_when_something_else_wakes_it(
        self, far: Handle, threads: Threads, claim_watch: ClaimWatch, watch: LeaseWatch
    ) -> None:
        watch.look((threads.fd,))
        assert (claim_watch.taken, threads.sent) == (0, [])
        watch.look((claim_watch.fd,))
        assert (claim_watch.taken, threads.sent) == (1, [far])

    def test_it_renews_nothing_when_told_of_notes_alone(
        self, threads: Threads, claim_watch: ClaimWatch, watch: LeaseWatch
    ) -> None:
        claim_watch.notes = (Note("T", "far", 1, "?"),)
        told: list[object] = []
        watch.noted = told.append
        watch.look((claim_watch.fd,))
        assert (told, threads.sent) == ([claim_watch.notes], [])

    def test_told_of_a_change_while_a_renewal_is_under_way_it_renews_once_more_when_that_has_come(
        self,
        desk: Desk,
        far: Handle,
        threads: Threads,
        claim_watch: ClaimWatch,
        watch: LeaseWatch,
    ) -> None:
        look_at(desk, watch, START + TTL / 3)
        watch.look((claim_watch.fd,))
        assert len(threads.sent) == 1
        threads.answers = [(whole(far), Outcome("", START + TTL / 3, value=Renewed(("far",))))]
        look_at(desk, watch, START + TTL / 3 + 2)
        assert len(threads.sent) == 2
        threads.answers = [(whole(far), Outcome("", START + TTL / 3 + 2, value=Renewed(("far",))))]
        look_at(desk, watch, START + TTL / 3 + 4)
        assert len(threads.sent) == 2  # nothing has changed since

    def answer(self, desk: Desk, watch: LeaseWatch, threads: Threads, **said: Any) -> None:
        """Have the renewal that was sent after a third of the ttl come back a little later."""
        look_at(desk, watch, START + TTL / 3)
        (sent,) = threads.sent
        assert watch.until(START + TTL / 3) == GIVE_UP  # its outcome says when next
        threads.answers = [(whole(sent), Outcome("", START + TTL / 3, **said))]
        look_at(desk, watch, START + TTL / 3 + 2)

    def test_what_it_answers_is_recorded_and_counts_from_the_sending(
        self, desk: Desk, watch: LeaseWatch, threads: Threads, far: Handle
    ) -> None:
        assert threads.fd in watch.fds()
        self.answer(desk, watch, threads, value=Renewed(("far",)))
        assert watch.until(START) == START + 2 * TTL / 3
        assert not watch.is_lost(GIVE_UP + TTL / 3 - 0.1)
        assert watch.is_lost(GIVE_UP + TTL / 3)
        (lease,) = desk.record(far).leases
        assert lease.renew_time == desk.time.clock.wall()

    def test_what_has_no_more_of_it_than_some_is_not_extended(
        self, desk: Desk, watch: LeaseWatch, threads: Threads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "note_renewal", fail)
        self.answer(desk, watch, threads, value=Renewed(("another",)))
        assert watch.is_lost(GIVE_UP)

    def test_who_has_taken_it_is_on_record_as_soon_as_that_is_told(
        self,
        desk: Desk,
        far: Handle,
        claim_watch: ClaimWatch,
        watch: LeaseWatch,
    ) -> None:
        assert claim_watch.fd in watch.fds()
        watch.look((claim_watch.fd,))
        assert watch.reason == ""
        claim_watch.reason = "released by force by ops: stuck"
        watch.look((claim_watch.fd,))
        assert watch.reason == desk.record(far).lost_reason == "released by force by ops: stuck"
        assert desk.record(far).runner == this_process()

    def test_what_can_not_be_recorded_counts_all_the_same(
        self, watch: LeaseWatch, desk: Desk, threads: Threads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "note_renewal", fail)
        self.answer(desk, watch, threads, value=Renewed(("far",)))
        assert not watch.is_lost(GIVE_UP + TTL / 3 - 0.1)
        assert watch.is_lost(GIVE_UP + TTL / 3)

    def test_what_it_no_longer_has_is_lost(
        self, desk: Desk, watch: LeaseWatch, threads: Threads, far: Handle
    ) -> None:
        self.answer(desk, watch, threads, value=Renewed(()))
        assert watch.is_lost(START)
        assert desk.record(far).lost

    def test_what_was_ready_to_be_taken_back_is_not_lost(
        self, desk: Desk, watch: LeaseWatch, threads: Threads, far: Handle
    ) -> None:
        uses = Uses(desk.state)
        with desk.state.transaction():
            uses.see(far, "far", SeenMark("a", "ops", START + 99, is_ready=True))
        self.answer(desk, watch, threads, value=Renewed(()))
        assert not watch.is_lost(GIVE_UP)
        assert (desk.record(far).state, desk.record(far).lost) == ("released", False)

    def test_what_failed_is_sent_again_in_a_second(
        self, desk: Desk, watch: LeaseWatch, threads: Threads
    ) -> None:
        self.answer(desk, watch, threads, error=BackendUnreachable("etcd doesn't answer"))
        assert watch.until(START) == START + TTL / 3 + 2 + 1
        assert not watch.is_lost(GIVE_UP - 0.1)
        assert watch.is_lost(GIVE_UP)
