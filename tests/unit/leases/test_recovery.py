"""What the dead have left and who puts it right, and what all verbs work on."""

from __future__ import annotations

import contextlib
import os

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.leases import recovery
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.recovery import due, recover, release_abandoned
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.named_pipe import listen
from leasectl.system.process import own_pid_namespace, this_process
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server

DEAD = this_process()._replace(start_time=1)
NO_WAIT = Patience(wait_seconds=0)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper is there."""
    monkeypatch.setattr(keeper_process, "is_kept", lambda state: True)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """For which state directories a keeper was to be there."""
    started: list[State] = []
    monkeypatch.setattr(keeper_process, "ensure", started.append)
    return started


def of_the_dead(desk: Desk, service: Service | None = None, *, guarded: bool = True) -> Handle:
    """A handle whose guard has ended; or one whose command has, before it told anybody."""
    service = service or desk.service
    handle = acquire(service, Request("T"), patience=NO_WAIT)
    if guarded:
        announce(service, handle)
    with desk.state.transaction() as db:
        who = "guard" if guarded else "waiter"
        db.execute(
            f"UPDATE handle SET {who} = ?, watched = 1 WHERE id = ?", (DEAD.encode(), handle.id)
        )
    return service.handles.require(handle.id)


class TestBesideAKeeper:
    @pytest.fixture
    def handles(self, desk: Desk, kept: None) -> list[Handle]:
        """What a dead guard had, and what a dead command had that told nobody."""
        desk.pool(2)
        return [of_the_dead(desk), of_the_dead(desk, guarded=False)]

    def test_all_goes_back_before_somebody_looks(self, desk: Desk, handles: list[Handle]) -> None:
        release_abandoned(desk.service)
        assert desk.held() == {}

    def test_with_that_go_the_pipes_that_nobody_reads_any_more(
        self, desk: Desk, handles: list[Handle]
    ) -> None:
        os.mkfifo(desk.state.waiter_pipe("T-killed.1"))
        with contextlib.closing(listen(desk.state.waiter_pipe("T-waits.1"))):
            release_abandoned(desk.service)
            assert os.listdir(desk.directory / "waiters") == ["T-waits.1"]

    def test_whose_record_has_gone_meanwhile_is_nobodys(
        self, desk: Desk, handles: list[Handle], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = ["T-gone", *(each.id for each in handles)]
        monkeypatch.setattr(recovery, "ids_of_the_dead", lambda *_, **__: ids)
        release_abandoned(desk.service)
        assert desk.held() == {}


class TestWithoutAKeeper:
    def test_where_nothing_is_left_none_is_started(self, desk: Desk, started: list[State]) -> None:
        desk.pool(1)
        of_the_dead(desk)
        started.clear()
        recover(desk.service)
        assert desk.held() == {}
        assert started == []

    def test_what_is_on_a_server_is_left_to_the_next_one(
        self, desk: Desk, server: Server, started: list[State]
    ) -> None:
        desk.pool(1)
        service = desk.as_caller(desk.caller, URL)
        there = [of_the_dead(desk, service), of_the_dead(desk, service, guarded=False)]
        of_the_dead(desk)
        started.clear()
        release_abandoned(service)
        assert server.asked == []
        assert {each.id for each in service.handles.active()} == {each.id for each in there}
        assert started == [desk.state]

    @pytest.mark.parametrize("is_guarded", [True, False])
    def test_a_killed_one_is_forgotten_when_nobody_needs_another(
        self, desk: Desk, is_guarded: bool
    ) -> None:
        desk.pool(1)
        desk.acquire(guard=this_process() if is_guarded else None)
        with desk.state.transaction() as db:
            row = (own_pid_namespace(), DEAD.encode())
            db.execute(
                "INSERT INTO keeper (pid_namespace, process, version) VALUES (?, ?, '9')", row
            )
        recover(desk.service)
        assert keeper_process.registered(desk.state) == (DEAD if is_guarded else None)


@pytest.mark.parametrize(
    ("runner", "is_due"), [(None, True), (DEAD, True), (this_process(), False)]
)
def test_what_a_dead_guard_held_is_released_only_once_its_run_is_dead_too(
    desk: Desk, runner: Process | None, is_due: bool
) -> None:
    desk.pool(1)
    handle = of_the_dead(desk)
    with desk.state.transaction() as db:
        db.execute("UPDATE handle SET runner = ?", (runner and runner.encode(),))
    assert due(desk.service) == [whole(handle)._replace(by="guard")] * is_due


def test_what_is_withheld_is_told_in_the_end(desk: Desk) -> None:
    told: list[str] = []
    service = Service(desk.state, Context("local:", caller=desk.caller, warn=told.append))
    service.warn("at once")
    with service.withholding() as withheld:
        service.warn("forgotten")
        service.warn("later")
        assert withheld.pop(0) == "forgotten"
        assert told == ["at once"]
    assert told == ["at once", "later"]


JOB = Caller("job/1", "host", "/shared")
PERSON = Caller("me@host", "host")


@pytest.mark.parametrize(
    ("caller", "owner", "is_its_own"),
    [
        (JOB, "job/1", True),
        (JOB, "job/2", False),
        (JOB, "me@host", False),
        (PERSON, "me@host", True),
        (PERSON, "1000@host", True),  # the same directory, before there was an entry in passwd
        (PERSON, "me@another", False),
        (PERSON, "job/1", False),
    ],
)
def test_what_its_job_or_its_directory_has_is_its_own(
    caller: Caller, owner: str, is_its_own: bool
) -> None:
    assert caller.is_owner(owner) is is_its_own
