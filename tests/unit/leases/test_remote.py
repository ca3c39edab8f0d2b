"""The verbs on a server, where grant and record can't be one transaction."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leasectl.backends.contract import Caller, Patience, Withdrawn
from leasectl.backends.kinds import claim_key_of, release_key_of
from leasectl.backends.pool.backend import PoolBackend
from leasectl.errors import (
    BackendUnreachable,
    Cancelled,
    LeaseLost,
    NoLease,
    NotAllowed,
    StateUnwritable,
)
from leasectl.leases.acquire import acquire, announce, reacquire, turn
from leasectl.leases.journal import RecordJournal, remote_lease
from leasectl.leases.recovery import due
from leasectl.leases.release import finish, release
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import (
    Claimant,
    Handle,
    Lease,
    Process,
    ReleasedBy,
    ReleaseTarget,
    Request,
    whole,
)
from leasectl.state import keeper_process, shared_leases
from leasectl.state.directory import State
from leasectl.state.event_log import StateEventLog
from leasectl.state.handles import count_lost_replies, explain_loss, new_id
from leasectl.state.named_pipe import is_read
from leasectl.state.timers import GivingBack
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, is_dead, this_process
from tests.kit.desk import Desk
from tests.kit.forking import ending, fork
from tests.kit.made_up_server import NAMES, URL, Look, Server, change_kind


@pytest.fixture
def service(server: Server, desk: Desk) -> Service:
    return desk.as_caller(desk.caller, URL)


@pytest.fixture
def handle(service: Service) -> Handle:
    """Holds all three."""
    handle = acquire(service, Request("T", 3), patience=Patience(wait_seconds=0))
    announce(service, handle)
    return handle


@pytest.fixture
def dead() -> Process:
    """A process that lived."""
    pid = fork(signal.pause)
    process = identify(pid)
    os.kill(pid, signal.SIGKILL)
    assert ending(pid) == -signal.SIGKILL
    return process


@pytest.fixture
def without_pools(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has none, so the records tell what happened."""
    change_kind(monkeypatch, has_pools=False)


def held(server: Server) -> list[str]:
    (pool,) = server.pools.pools("T")
    return [each.name for each in pool.resources if each.lease]


def giving_back(service: Service, handle: Handle, name: str) -> list[Process]:
    return GivingBack(service.state, release_key_of(handle)).processes(name)


def start_giving_back(service: Service, handle: Handle, name: str, process: Process) -> None:
    with service.state.transaction():
        GivingBack(service.state, release_key_of(handle)).start([name], process)


def release_in_vain(service: Service, handle: Handle) -> BackendUnreachable:
    """Release what the server doesn't answer for; returns what is raised."""
    with pytest.raises(BackendUnreachable) as caught:
        release(service, whole(handle))
    return caught.value


def unreachable_for(name: str) -> Look:
    def look(names: Sequence[str]) -> None:
        if name in names:
            raise BackendUnreachable(f"no answer about {name}")

    return look


@pytest.mark.usefixtures("without_pools")
def test_there_it_is_told_by_whom_a_lease_was_given_back_and_what_was_lost(
    server: Server, service: Service, handle: Handle
) -> None:
    list(PoolBackend.release(server, claim_key_of(handle), ["T--01"]))
    release(service, whole(handle, by="guard"))
    told = list(StateEventLog(service.state, backend=URL).read())
    assert [(each.kind, each.names, each.by, each.reason) for each in told[2:]] == [
        ("released", ("T--00",), "guard", ""),
        ("released", ("T--02",), "guard", ""),
        ("lost", ("T--01",), "removal", "its server no longer had it"),
        ("released", ("T--01",), "removal", ""),
    ]


@pytest.mark.usefixtures("without_pools")
@pytest.mark.parametrize("is_left_to_keeper", [False, True])
def test_there_who_gives_up_by_itself_has_waited_since_it_asked(
    service: Service, desk: Desk, is_left_to_keeper: bool
) -> None:
    journal = RecordJournal(service, new_handle(service, Request("T"), "T-new"))
    journal.enqueuing()
    desk.time.advance(5)
    if is_left_to_keeper:
        journal.to_undo()
        journal.leave_to_keeper("why")
    journal.gave_up("why")
    told = StateEventLog(service.state, backend=URL).read()
    waits = [(each.kind, each.wait_seconds, each.reason) for each in told]
    assert waits == [("queued", None, ""), ("gave up", 5.0, "why")]


def test_of_what_is_granted_by_name_only_all_else_is_unknown(handle: Handle) -> None:
    assert remote_lease(handle, "far", 5.0) == Lease(
        name="far",
        fence=0,
        ticket=0,
        grant=0,
        holder_identity=handle.holder_identity,
        acquire_time=5.0,
        renew_time=5.0,
        lease_duration_seconds=None,
        lease_transitions=0,
        labels=handle.request.labels,
    )


class TestAcquire:
    def test_one_that_cant_go_back_now_either_is_left_to_the_keeper(
        self, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise StateUnwritable("no space left")

        def away(*_: object) -> None:
            raise BackendUnreachable("no answer")

        monkeypatch.setattr(RecordJournal, "granted", full)
        monkeypatch.setattr("leasectl.leases.acquire.release", away)
        with pytest.raises(StateUnwritable):
            acquire(service, Request("T"), patience=Patience())
        assert len(due(service)) == 1  # the keeper goes on trying

    def test_who_is_woken_and_was_not_released_sleeps_again(
        self, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wait(claimant: Claimant, journal: RecordJournal, patience: Patience) -> None:
            journal.enqueuing()
            interrupt = patience.interrupts[0]
            pipe = service.state.cancel_pipe(journal.handle.id, journal.handle.acquisition)
            assert is_read(pipe)  # which wakes it
            assert is_readable(interrupt.fd, 0)
            interrupt.raise_()
            assert not is_readable(interrupt.fd, 0)
            raise NoLease("as made up")

        monkeypatch.setattr(server, "acquire", wait)
        with pytest.raises(NoLease, match="as made up"):
            acquire(service, Request("T"), patience=Patience())

    @pytest.mark.parametrize("how", ["cancelled", "forgotten"])
    def test_who_is_woken_because_it_was_released_gives_up(
        self, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        def wait(claimant: Claimant, journal: RecordJournal, patience: Patience) -> None:
            journal.enqueuing()
            interrupt = patience.interrupts[0]
            with service.state.transaction():
                service.handles.cancel(service.handles.require(journal.handle.id))
                if how == "forgotten":
                    service.handles.forget(journal.handle.id, journal.handle.acquisition)
            assert is_readable(interrupt.fd, 0)
            interrupt.raise_()

        monkeypatch.setattr(server, "acquire", wait)
        with pytest.raises(Cancelled, match="was released while it waited"):
            acquire(service, Request("T"), patience=Patience())
        assert service.handles.ids() == set()

    def test_a_server_that_ends_a_wait_by_itself_is_unreachable(
        self, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def withdrawn(*_: object) -> None:
            raise Withdrawn("T: the request was released")

        monkeypatch.setattr(server, "acquire", withdrawn)
        with pytest.raises(BackendUnreachable, match="ended the waiting request; try again"):
            acquire(service, Request("T"), patience=Patience())

    def test_the_ttl_of_what_nobody_is_going_to_renew_counts_from_the_grant(
        self, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        renewed: list[str] = []

        def noted(service: Service, target: ReleaseTarget) -> Handle:
            renewed.append(target.handle_id)
            return renew(service, target)

        monkeypatch.setattr("leasectl.leases.renew.renew", noted)
        own = acquire(service, Request("T", ttl_seconds=50.0), patience=Patience())
        assert renewed == [own.id]
        acquire(service, Request("T"), patience=Patience())  # which the keeper does
        assert renewed == [own.id]

    def test_of_scope_test_it_is_listed_or_goes_back(
        self, server: Server, desk: Desk, tmp_path: Path
    ) -> None:
        service = desk.as_caller(Caller("job/1", "host", str(tmp_path)), URL)
        wanted = Request("T", scope="test", ttl_seconds=60.0)
        handle = acquire(service, wanted, patience=Patience())
        assert shared_leases.listed(str(tmp_path)) == ["T--00"]
        announce(service, handle)
        reacquire(service, handle.id, patience=Patience())
        assert shared_leases.listed(str(tmp_path)) == ["T--01"]  # and no more what it gave back
        (tmp_path / "leases").unlink()
        (tmp_path / "leases").mkdir()
        with pytest.raises(StateUnwritable):
            acquire(service, wanted, patience=Patience())
        assert held(server) == ["T--01"]

    def test_of_scope_test_it_goes_back_later_if_the_server_is_away_now(
        self, server: Server, desk: Desk, tmp_path: Path
    ) -> None:
        service = desk.as_caller(Caller("job/1", "host", str(tmp_path)), URL)
        (tmp_path / "leases").mkdir()
        server.before_release = unreachable_for("T--00")
        with pytest.raises(StateUnwritable):
            acquire(service, Request("T", scope="test", ttl_seconds=60.0), patience=Patience())
        assert held(server) == ["T--00"]
        server.before_release = lambda names: None
        (due,) = service.handles.timers.due(desk.time.clock.elapsed())
        assert [each.id for each in service.handles.watched()] == [due.handle_id]
        assert release(service, due) == ("T--00",)
        assert held(server) == []

    @pytest.mark.parametrize("is_generator", [False, True])
    def test_of_a_lost_grant_the_keeper_goes_on_with_what_is_left(
        self,
        server: Server,
        service: Service,
        monkeypatch: pytest.MonkeyPatch,
        is_generator: bool,
    ) -> None:
        def lost(claimant: Claimant, journal: RecordJournal, patience: Patience) -> Iterator[Any]:
            journal.enqueuing()
            journal.to_undo()
            yield from ()
            raise BackendUnreachable("its answer was lost")

        monkeypatch.setattr(server, "turn", lost)
        monkeypatch.setattr(server, "acquire", lambda *args: next(lost(*args)))
        with pytest.raises(BackendUnreachable):
            if is_generator:
                next(turn(service, Request("T"), handle_id="T-served", patience=Patience()))
            else:
                acquire(service, Request("T"), patience=Patience())
        assert len(due(service)) == 1


class TestReacquire:
    def test_who_finds_that_another_has_begun_one_meanwhile_gives_way(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        def begin(names: Sequence[str]) -> None:
            server.before_release = lambda names: None
            reacquire(service, handle.id, patience=Patience(wait_seconds=0))

        server.before_release = begin
        with pytest.raises(Cancelled, match="was acquired again by another process"):
            reacquire(service, handle.id, patience=Patience(wait_seconds=0))
        record = service.handles.require(handle.id)
        assert (record.acquisition, set(record.names)) == (2, set(NAMES))
        assert held(server) == list(NAMES)


class TestRelease:
    def test_it_is_on_record_while_it_is_under_way_and_not_afterwards(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        seen: list[list[list[Process]]] = []
        server.before_release = lambda names: seen.append(
            [giving_back(service, handle, name) for name in NAMES]
        )
        assert release(service, whole(handle)) == NAMES
        us = [this_process()]
        assert seen == [[us, us, us], [[], us, us], [[], [], us]]
        assert [giving_back(service, handle, name) for name in NAMES] == [[], [], []]
        record = service.handles.require(handle.id)
        assert (record.state, record.names, record.lost) == ("released", (), False)
        assert held(server) == []

    def test_what_cant_be_released_stays_in_the_record_with_all_behind_it(
        self, server: Server, service: Service, handle: Handle, desk: Desk
    ) -> None:
        server.before_release = unreachable_for("T--01")
        assert release_in_vain(service, handle).released == ("T--00",)
        record = service.handles.require(handle.id)
        assert (record.state, record.names) == ("held", ("T--01", "T--02"))
        assert desk.names_file(handle) == "T--01\nT--02"
        # Nothing of this process is under way any more, but what came of that nobody knows.
        for name in ("T--01", "T--02"):
            (process,) = giving_back(service, handle, name)
            assert process != this_process() and is_dead(process)
        server.before_release = lambda names: None
        assert release(service, whole(handle)) == ("T--01", "T--02")
        assert desk.names_file(handle) == ""
        assert [giving_back(service, handle, name) for name in NAMES] == [[], [], []]

    def test_what_was_given_back_without_an_answer_is_not_lost(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        server.after_release = unreachable_for("T--01")
        assert release_in_vain(service, handle).released == ("T--00",)
        assert held(server) == ["T--02"]
        server.after_release = lambda names: None
        assert release(service, whole(handle)) == ("T--02",)
        record = service.handles.require(handle.id)
        assert (record.state, record.names, record.lost) == ("released", (), False)
        assert [giving_back(service, handle, name) for name in NAMES] == [[], [], []]

    def test_nor_where_a_renewal_finds_it_gone_first(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        server.after_release = unreachable_for("T--00")
        release_in_vain(service, handle)
        with service.state.transaction():
            service.losses.note_gone(service.handles.require(handle.id), ["T--00"])
        record = service.handles.require(handle.id)
        assert (record.state, record.names, record.lost) == ("held", NAMES[1:], False)
        assert giving_back(service, handle, "T--00") == []

    def test_what_was_taken_by_force_instead_is_lost(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        server.before_release = unreachable_for("T--00")
        release_in_vain(service, handle)
        with service.state.transaction():
            explain_loss(service.state, handle, "released by force by ops")
        with pytest.raises(LeaseLost, match="released by force by ops"):
            note_renewal(service, whole(handle), NAMES[1:])

    def test_what_a_renewal_has_found_there_since_is_lost(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        server.before_release = unreachable_for("T--00")
        release_in_vain(service, handle)
        renew(service, whole(handle))
        assert giving_back(service, handle, "T--00") == []
        with pytest.raises(LeaseLost):
            note_renewal(service, whole(handle), NAMES[1:])

    def test_what_a_dead_one_was_releasing_is_over(
        self, server: Server, service: Service, handle: Handle, dead: Process
    ) -> None:
        start_giving_back(service, handle, "T--01", dead)
        list(PoolBackend.release(server, claim_key_of(handle), ["T--01"]))
        assert release(service, whole(handle)) == ("T--00", "T--02")
        assert service.handles.require(handle.id).names == ()
        assert giving_back(service, handle, "T--01") == []

    @pytest.mark.parametrize("has_released", [True, False])
    def test_where_a_name_is_all_that_is_told_only_one_asks(
        self,
        server: Server,
        service: Service,
        handle: Handle,
        alive: Process,
        monkeypatch: pytest.MonkeyPatch,
        has_released: bool,
    ) -> None:
        """A second request would be for whoever has been granted it since."""
        change_kind(monkeypatch, releases_by_name=True)
        start_giving_back(service, handle, "T--01", alive)
        asked: list[str] = []

        def end(seconds: float) -> None:
            assert (asked, seconds) == (["T--00", "T--02"], 0.01)
            with service.state.transaction():
                GivingBack(service.state, release_key_of(handle)).stopped(["T--01"], alive)
                if has_released:
                    service.handles.returned(service.handles.require(handle.id), "T--01")

        monkeypatch.setattr("leasectl.leases.release.pause", end)
        server.before_release = asked.extend
        released = release(service, whole(handle))
        if has_released:
            assert released == ("T--00", "T--02")
            assert "T--01" not in asked
        else:
            assert released == ("T--00", "T--01", "T--02")
        assert service.handles.require(handle.id).names == ()
        assert [giving_back(service, handle, name) for name in NAMES] == [[], [], []]

    def test_who_asks_and_is_stopped_is_not_waited_for_for_ever(
        self,
        server: Server,
        service: Service,
        handle: Handle,
        alive: Process,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        change_kind(monkeypatch, releases_by_name=True)
        start_giving_back(service, handle, "T--01", alive)
        service.context = service.context._replace(release_seconds=0.0)
        assert release(service, whole(handle)) == NAMES
        assert held(server) == []

    def test_only_of_what_may_have_more_all_that_there_may_be_is_asked_for(
        self, server: Server, service: Service, handle: Handle, dead: Process
    ) -> None:
        key = claim_key_of(handle)
        with service.state.transaction():
            count_lost_replies(service.state, handle, 1)
        release(service, whole(handle))
        assert server.asked == [(key, NAMES), (key, ())]

    def test_of_what_is_certain_no_more_is_asked_for(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        release(service, whole(handle))
        assert server.asked == [(claim_key_of(handle), NAMES)]
        assert release(service, whole(handle)) == ()
        assert len(server.asked) == 1

    def test_of_what_has_lost_a_part_all_that_is_kept_of_that_is_asked_for(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        with pytest.raises(LeaseLost):
            note_renewal(service, whole(handle), ["T--00"])
        assert release(service, ReleaseTarget(handle.id, 1, ("T--02",))) == ()
        assert server.asked.pop() == (claim_key_of(handle), ("T--02",))
        assert release(service, whole(handle)) == ("T--00",)
        assert server.asked == [(claim_key_of(handle), ("T--00",)), (claim_key_of(handle), ())]

    def test_of_what_was_lost_the_server_needs_keep_no_longer_what_it_keeps(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        with pytest.raises(LeaseLost):
            note_renewal(service, whole(handle), [])
        lost = service.handles.require(handle.id)
        assert (lost.state, lost.lost) == ("released", True)
        assert release(service, ReleaseTarget(handle.id, 1, ("T--00",))) == ()
        assert server.asked == []  # only who releases all of it knows of the loss
        assert release(service, whole(handle)) == ()
        assert server.asked == [(claim_key_of(handle), ())]

    def test_a_finished_handle_is_forgotten(
        self, server: Server, service: Service, handle: Handle
    ) -> None:
        assert finish(service, handle) == NAMES
        assert service.handles.load(handle.id) is None
        assert held(server) == []


class TestReleaseOfWhoWaits:
    @pytest.fixture
    def waiting(self, service: Service, alive: Process) -> Handle:
        """A request that another process waits for."""
        waiting = new_handle(service, Request("T"), "T-waits")._replace(waiter=alive)
        with service.state.transaction():
            service.handles.create(waiting, remote=True)
        return waiting

    def test_it_cancels_and_takes_the_place_in_the_queue_away(
        self,
        server: Server,
        service: Service,
        waiting: Handle,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        woken: list[str] = []
        monkeypatch.setattr(service.state, "wake", woken.append)
        assert release(service, whole(waiting)) == ()
        assert woken == [service.state.cancel_pipe(waiting.id, 1)]
        assert service.handles.require(waiting.id).cancelled
        assert server.withdrawn == [claim_key_of(waiting)]
        assert server.asked == []  # the waiter gives back itself what it may have got

    @pytest.mark.parametrize(
        ("by", "why"),
        [("guard", "its process ended"), ("command", "released while it waited")],
    )
    def test_it_is_told_who_did_that(
        self,
        server: Server,
        service: Service,
        waiting: Handle,
        monkeypatch: pytest.MonkeyPatch,
        by: ReleasedBy,
        why: str,
    ) -> None:
        told: list[str] = []
        monkeypatch.setattr(server, "withdraw", lambda claim_key, why: told.append(why))
        release(service, whole(waiting, by=by))
        assert told == [why]

    @pytest.mark.usefixtures("without_pools")
    @pytest.mark.parametrize("is_dead", [True, False])
    def test_of_who_was_killed_it_is_told_where_no_pool_does(
        self, service: Service, waiting: Handle, dead: Process, is_dead: bool
    ) -> None:
        waiter = dead if is_dead else this_process()  # which tells that itself
        with service.state.transaction() as db:
            db.execute("UPDATE handle SET waiter = ?", (waiter.encode(),))
        release(service, whole(waiting))
        assert service.handles.require(waiting.id).state == "released"
        told = StateEventLog(service.state, backend=URL).read()
        assert [(each.kind, each.reason) for each in told] == (
            [("gave up", "its process ended")] if is_dead else []
        )

    @pytest.mark.usefixtures("without_pools")
    def test_of_who_was_killed_it_is_not_told_before_all_is_over(
        self, service: Service, waiting: Handle, dead: Process, alive: Process
    ) -> None:
        with service.state.transaction() as db:
            db.execute("UPDATE handle SET waiter = ?", (dead.encode(),))
            for name in ("T--00", "T--01"):
                service.handles.arrived(waiting, remote_lease(waiting, name, 5.0))
        start_giving_back(service, waiting, "T--01", alive)
        release(service, whole(waiting))
        assert service.handles.require(waiting.id).names == ("T--01",)
        assert list(StateEventLog(service.state, backend=URL).read()) == []

    def test_of_who_was_killed_all_that_it_may_have_got_is_given_back(
        self, server: Server, service: Service, waiting: Handle, dead: Process
    ) -> None:
        with service.state.transaction() as db:
            db.execute("UPDATE handle SET waiter = ?", (dead.encode(),))
        release(service, whole(waiting))
        assert server.asked == [(claim_key_of(waiting), ())]
        assert not service.handles.require(waiting.id).cancelled


class TestAPartGivenBack:
    """Who gets some of several and not the rest in time gives that back, and goes on."""

    def begun(self, service: Service, waiter: Process) -> RecordJournal:
        handle = new_handle(service, Request("T", 2), new_id("T"))._replace(waiter=waiter)
        journal = RecordJournal(service, handle)
        journal.enqueuing()
        return journal

    def test_it_is_had_by_nobody_until_that_is_recorded(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change_kind(monkeypatch, releases_by_name=True)
        first, second = (self.begun(service, this_process()) for _ in range(2))
        assert first.arrived("T--01") is not None
        first.returning("T--01")
        assert second.arrived("T--01") is None
        first.returned("T--01")
        assert second.arrived("T--01") is not None
        assert service.handles.require(first.handle.id).names == ()
        assert service.handles.require(second.handle.id).names == ("T--01",)

    def test_who_gets_it_ends_no_acquisition_that_goes_on(
        self, service: Service, alive: Process
    ) -> None:
        """Where a release is told whose it is, it can't hit the new grant."""
        first, second = self.begun(service, alive), self.begun(service, this_process())
        for name in ("T--00", "T--01"):
            assert first.arrived(name) is not None
        start_giving_back(service, first.handle, "T--01", alive)
        assert second.arrived("T--01") is not None
        record = service.handles.require(first.handle.id)
        assert (record.state, record.names, record.lost) == ("acquiring", ("T--00",), False)

    def test_a_release_that_nobody_can_tell_the_end_of_keeps_it_for_a_time(
        self, service: Service, desk: Desk
    ) -> None:
        """Its container may have gone, and the state directory be on a volume."""
        elsewhere = this_process()._replace(pid_namespace=1)
        journal = self.begun(service, this_process())
        start_giving_back(service, journal.handle, "T--01", elsewhere)
        assert journal.arrived("T--01") is None
        desk.time.advance(29)
        assert journal.arrived("T--01") is None
        desk.time.advance(1)
        assert journal.arrived("T--01") is not None
        assert giving_back(service, journal.handle, "T--01") == []


class TestRenewals:
    def test_what_is_not_among_what_is_held_has_been_lost(
        self, service: Service, handle: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken: list[str] = []
        monkeypatch.setattr(service.state, "wake", woken.append)
        with pytest.raises(LeaseLost):
            note_renewal(service, whole(handle), ["T--00", "T--02"])
        record = service.handles.require(handle.id)
        assert (record.names, record.lost) == (("T--00", "T--02"), True)
        assert woken == [service.state.runner_pipe(handle.id)]

    def test_what_is_just_being_given_back_is_not_lost(
        self, service: Service, handle: Handle, alive: Process
    ) -> None:
        start_giving_back(service, handle, "T--01", alive)
        assert note_renewal(service, whole(handle), ["T--00", "T--02"]).names == NAMES
        assert not service.handles.require(handle.id).lost

    def test_what_a_dead_one_was_giving_back_was_released(
        self, service: Service, handle: Handle, dead: Process
    ) -> None:
        start_giving_back(service, handle, "T--01", dead)
        renewed = note_renewal(service, whole(handle), ["T--00", "T--02"])
        assert (renewed.names, renewed.lost) == (("T--00", "T--02"), False)

    def test_what_comes_late_for_an_acquisition_changes_nothing_of_the_next(
        self, service: Service, handle: Handle, desk: Desk
    ) -> None:
        release(service, whole(handle))
        with pytest.raises(NotAllowed, match="holds nothing to renew"):
            note_renewal(service, whole(handle), NAMES)
        with pytest.raises(NotAllowed):
            renew(service, whole(handle))


class TestTheJournal:
    @pytest.fixture
    def journal(self, service: Service) -> RecordJournal:
        journal = RecordJournal(service, new_handle(service, Request("T"), "T-new"))
        journal.enqueuing()
        return journal

    def test_what_may_have_to_be_undone_counts_as_one_lost_reply(
        self, service: Service, journal: RecordJournal
    ) -> None:
        journal.to_undo()
        assert journal.unsettled
        assert service.handles.require("T-new").lost_replies == 1
        journal.to_undo()
        assert service.handles.require("T-new").lost_replies == 1

    def test_each_lost_reply_counts_and_what_was_found_counts_no_more(
        self, service: Service, journal: RecordJournal
    ) -> None:
        journal.lost_reply()
        journal.lost_reply()
        assert service.handles.require("T-new").lost_replies == 2
        journal.found()
        assert service.handles.require("T-new").lost_replies == 0

    @pytest.mark.parametrize("has_pools", [True, False])
    def test_what_its_server_grants_anew_is_lost_by_who_had_it(
        self,
        service: Service,
        handle: Handle,
        journal: RecordJournal,
        monkeypatch: pytest.MonkeyPatch,
        has_pools: bool,
    ) -> None:
        change_kind(monkeypatch, has_pools=has_pools)
        again = RecordJournal(service, journal.handle)
        again.arrived("T--01")
        record = service.handles.require(handle.id)
        assert (record.names, record.lost) == (("T--00", "T--02"), True)
        told = StateEventLog(service.state, backend=URL).read()
        assert [(each.kind, each.names) for each in told if each.handle == handle.id] == (
            [] if has_pools else [("lost", ("T--01",)), ("released", ("T--01",))]
        )

    def test_what_the_keeper_is_to_give_back_is_due_at_once_and_it_is_told(
        self, service: Service, journal: RecordJournal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[State] = []
        monkeypatch.setattr(keeper_process, "wake", told.append)
        journal.to_undo()
        assert told == []
        journal.leave_to_keeper()
        assert told == [service.state]
        assert [target.handle_id for target in due(service)] == ["T-new"]
        assert service.handles.require("T-new").waiter is None  # who asked has no part in it now
