"""Acquiring, announcing and releasing, what killed processes leave, and what a verb costs."""

from __future__ import annotations

import functools
import os
import signal
from typing import Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import (
    Cancelled,
    InvalidRequest,
    LeaseLost,
    NotFound,
)
from leasectl.leases.acquire import acquire, announce, reacquire, take_back
from leasectl.leases.recovery import due, recover
from leasectl.leases.release import finish, release
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, ReleaseTarget, Request, whole
from leasectl.pools import admin
from leasectl.state.directory import State
from leasectl.state.handles import KEEP_UNGUARDED_SECONDS
from leasectl.system.process import identify, this_process
from tests.kit.desk import ONE, Desk
from tests.kit.forking import ending, fork
from tests.kit.killing import kill_this_process
from tests.kit.waits import eventually, result_of


class TestAcquire:
    def test_of_several_types_it_is_the_first_where_nobody_says(self, desk: Desk) -> None:
        service = desk.as_caller(desk.caller, "none:")
        either = Request("T", other_types=("U",))
        assert acquire(service, either, patience=Patience()).granted_type == "T"

    @pytest.mark.parametrize(
        "request_", [Request("T", count=3), Request("U"), Request("T", name="x")]
    )
    def test_a_refused_request_leaves_nothing(self, desk: Desk, request_: Request) -> None:
        desk.pool(2)
        with pytest.raises((InvalidRequest, NotFound)):
            desk.acquire(request_, wait=None)
        assert desk.service.handles.active() == []
        assert os.listdir(desk.directory / "handles") == []
        assert os.listdir(desk.directory / "waiters") == []

    def test_the_names_file_is_there_with_the_grant_where_its_path_is_told_before(
        self, desk: Desk
    ) -> None:
        desk.pool(1)
        handle = acquire(desk.service, Request("T"), patience=Patience(), listed=True)
        assert desk.names_file(handle) == "T--00"
        os.unlink(desk.state.names_path(handle.id))  # as who cleans /tmp does
        announce(desk.service, handle)
        assert desk.names_file(handle) == "T--00"

    def test_what_a_lease_that_nobody_is_told_of_asks_of_the_database_is_little(
        self, desk: Desk
    ) -> None:
        desk.pool(1)
        said: list[str] = []
        take = functools.partial(acquire, desk.service, Request("T"), patience=Patience())
        finish(desk.service, take())  # the first reserves fences
        desk.state.db.set_trace_callback(said.append)
        finish(desk.service, take())
        desk.state.db.set_trace_callback(None)
        at_times = ("purge_cursor", "FROM handle WHERE id >")  # by chance
        # A statement is told once more for each trigger that it meets.
        assert len([each for each in said if not any(part in each for part in at_times)]) <= 34

    @pytest.mark.once
    def test_the_directory_does_not_grow(self, desk: Desk) -> None:
        desk.pool(1)
        files, records = [], []
        for _ in range(600):
            release(desk.service, whole(desk.acquire()))
            desk.time.advance(KEEP_UNGUARDED_SECONDS / 5)
            files.append(len(os.listdir(desk.directory / "handles")))
            records.append(len(desk.state.query("SELECT id FROM handle")))
        # Five are less than a day old. When the others go is a matter of chance: of 300 in a row
        # none looks for them once in 200 million.
        assert max(files + records) < 400
        assert min(files[300:]) <= 15
        assert min(records[300:]) <= 15


@pytest.mark.parametrize(
    "look",
    [
        lambda service: recover(service),
        lambda service: admin.show(service),
        lambda service: [release(service, target) for target in due(service)],
    ],
    ids=["a next command", "status", "the keeper"],
)
def test_a_command_that_tells_and_ends_while_somebody_looks_keeps_its_lease(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, look: Callable[[Service], object]
) -> None:
    desk.pool(1)
    handle = acquire(
        desk.service, Request("T", release_after_seconds=60.0), patience=Patience(wait_seconds=0)
    )

    def tells_and_ends(process: Process | None) -> bool:
        if process is not None and desk.record(handle).waiter == process:
            announce(desk.service, handle)
        return process is not None

    monkeypatch.setattr("leasectl.leases.recovery.is_dead", tells_and_ends)
    monkeypatch.setattr("leasectl.system.process.is_dead", tells_and_ends)
    look(desk.service)
    assert desk.held() == {"T--00": handle.id}
    assert desk.record(handle).waiter is None


class TestRelease:
    def test_an_old_release_does_not_free_what_another_got_since(self, desk: Desk) -> None:
        desk.pool(1)
        handle = desk.acquire()
        release(desk.service, whole(handle))
        other = desk.acquire()
        assert release(desk.service, whole(handle)) == ()
        assert release(desk.service, ReleaseTarget(handle.id, 1, ("T--00",))) == ()
        assert desk.held() == {"T--00": other.id}

    def test_of_many_at_once_exactly_one_gets_the_names(self, desk: Desk) -> None:
        desk.pool(2)
        handle = desk.acquire(Request("T", count=2))
        results = [desk.beside(lambda service: release(service, whole(handle))) for _ in range(20)]
        freed = [result_of(result) for result in results]
        assert sorted(freed) == [()] * 19 + [("T--00", "T--01")]

    def test_while_acquiring_cancels_the_waiter(self, desk: Desk) -> None:
        desk.pool(1)
        desk.acquire()
        pending = desk.acquire_beside()
        (waiting,) = (each for each in desk.service.handles.active() if each.state == "acquiring")
        assert release(desk.service, whole(waiting)) == ()
        with pytest.raises(Cancelled):
            result_of(pending)
        assert desk.tickets() == []

    def test_finishing_what_expired_and_is_anothers_now_touches_nothing(self, desk: Desk) -> None:
        desk.pool(1)
        handle = desk.acquire(Request("T", ttl_seconds=60))
        desk.time.advance(61)
        other = desk.acquire()
        assert finish(desk.service, handle) == ()
        assert desk.record(other).names == ("T--00",)
        assert desk.service.handles.load(handle.id) is None


class TestWhatTheDeadLeave:
    def test_a_grant_nobody_was_told_of_is_undone_by_the_next_command(self, desk: Desk) -> None:
        desk.pool(1)

        def acquire_and_die() -> None:
            service = desk.open(State.open(str(desk.directory)))
            acquire(service, ONE, patience=Patience(wait_seconds=0))
            kill_this_process()

        assert ending(fork(acquire_and_die)) == -signal.SIGKILL
        assert len(desk.held()) == 1
        recover(desk.service)
        assert desk.held() == {}

    def test_a_grant_nobody_was_told_of_is_undone_by_who_waits_for_it(self, desk: Desk) -> None:
        desk.pool(1)
        read, write = os.pipe()

        def acquire_and_linger() -> None:
            service = desk.open(State.open(str(desk.directory)))
            acquire(service, ONE, patience=Patience(wait_seconds=0))
            os.write(write, b"!")
            signal.pause()

        child = fork(acquire_and_linger)
        os.read(read, 1)
        pending = desk.acquire_beside()
        os.kill(child, signal.SIGKILL)
        ending(child)
        assert result_of(pending).names == ("T--00",)
        os.close(read)
        os.close(write)

    def test_what_a_dead_guard_held_is_released_by_any_command(self, desk: Desk) -> None:
        desk.pool(1)
        guard = fork(signal.pause)
        handle = desk.acquire(guard=identify(guard))
        recover(desk.service)
        assert desk.held() == {"T--00": handle.id}
        os.kill(guard, signal.SIGKILL)
        ending(guard)
        recover(desk.service)
        assert desk.held() == {}
        assert desk.record(handle).state == "released"

    def test_a_guard_in_a_foreign_namespace_is_never_taken_for_dead(self, desk: Desk) -> None:
        desk.pool(1)
        foreign = this_process()._replace(pid_namespace=1, pid=1 << 30)
        handle = desk.acquire(guard=foreign)
        recover(desk.service)
        admin.show(desk.service)
        assert desk.held() == {"T--00": handle.id}

    def test_killed_waiters_leave_nothing_for_long(self, desk: Desk) -> None:
        desk.pool(1)
        holder = desk.acquire()

        def wait() -> None:
            acquire(desk.open(State.open(str(desk.directory))), ONE, patience=Patience())

        children = [fork(wait) for _ in range(10)]
        eventually(lambda: len(desk.tickets()) == 10)
        for child in children:
            os.kill(child, signal.SIGKILL)
            ending(child)
        release(desk.service, whole(holder))
        again = desk.acquire()
        assert desk.tickets() == []
        active = [each.id for each in desk.service.handles.active()]
        assert active == [again.id]


class TestTheDryRun:
    def test_an_unknown_backend_is_refused(self, desk: Desk) -> None:
        for url in ("locl:", "", "http:x", "ftp://x", "http://x y", "local:x"):
            service = desk.as_caller(desk.caller, url)
            choices = "choose local:, none:, etcd://HOST:PORT, kubernetes://NAMESPACE, the http://"
            with pytest.raises(InvalidRequest, match=choices):
                acquire(service, ONE, patience=Patience())
        assert service.handles.active() == []


def test_of_clients_that_are_killed_at_any_time_nothing_is_left(desk: Desk) -> None:
    desk.pool(2)

    def work() -> None:
        service = desk.open(State.open(str(desk.directory)))
        recover(service)
        while True:
            handle = acquire(service, ONE, patience=Patience())
            announce(service, handle, guard=this_process())
            release(service, whole(handle))

    for round_number in range(1, 6):
        children = [fork(work) for _ in range(4)]
        eventually(functools.partial(has_granted, desk, 20 * round_number))
        for child in children:
            os.kill(child, signal.SIGKILL)
            ending(child)
    admin.show(desk.service)
    assert desk.held() == {}
    assert desk.tickets() == []
    assert desk.service.handles.active() == []
    assert len(desk.acquire(Request("T", count=2)).names) == 2


def has_granted(desk: Desk, count: int) -> bool:
    return int(desk.state.query("SELECT MAX(fence) FROM resource")[0][0]) >= count


FEW, MANY = 10, 1000
HELD = 500


def steps(desk: Desk, act: Callable[[], object]) -> int:
    """How many instructions SQLite takes for an act; to find a row by an index is one of them."""
    taken = 0

    def one_more() -> None:
        nonlocal taken
        taken += 1

    desk.state.db.set_progress_handler(one_more, 1)
    try:
        act()
    finally:
        desk.state.db.set_progress_handler(None, 0)
    return taken


def costs(desk: Desk, request: Request) -> dict[str, int]:
    """What each step of a pair takes, the least of some: now and then one looks for what is old."""
    rounds = [_costs(desk, request) for _ in range(3)]
    return {verb: min(each[verb] for each in rounds) for verb in rounds[0]}


def _costs(desk: Desk, request: Request) -> dict[str, int]:
    granted: list[Handle] = []

    def take() -> None:
        patience = Patience(wait_seconds=0)
        granted.append(acquire(desk.service, request, patience=patience))

    def give_back() -> None:
        release(desk.service, whole(granted[-1]))

    return {
        "acquire": steps(desk, take),
        "announce": steps(desk, lambda: announce(desk.service, granted[-1])),
        "release": steps(desk, give_back),
        "acquire again": steps(desk, take),
        "finish": steps(desk, lambda: finish(desk.service, granted[-1])),
    }


@pytest.mark.once
def test_a_large_pool_and_many_holders_cost_a_verb_nothing(desk: Desk) -> None:
    desk.pool(FEW, "F")
    few = costs(desk, Request("F"))
    desk.pool(MANY, "M")
    for _ in range(HELD):
        desk.acquire(Request("M"), guard=this_process())
    many = costs(desk, Request("M"))
    dearer = {verb: (few[verb], many[verb]) for verb in few if many[verb] > few[verb] * 1.25}
    assert dearer == {}


NO_WAIT = Patience(wait_seconds=0)


@pytest.fixture
def granted(desk: Desk) -> Handle:
    desk.pool(2)
    return acquire(desk.service, Request("T", ttl_seconds=60.0), patience=NO_WAIT)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_somebody_has_released_is_cancelled(
    desk: Desk, granted: Handle, is_forgotten: bool
) -> None:
    (finish if is_forgotten else release)(
        desk.service,
        granted if is_forgotten else whole(granted),  # type: ignore[arg-type]
    )
    with pytest.raises(Cancelled, match=rf"^handle {granted.id} was released before it could be"):
        announce(desk.service, granted)


def test_what_a_later_acquisition_has_lost_was_released_by_that(
    desk: Desk, granted: Handle
) -> None:
    again = reacquire(desk.service, granted.id, patience=NO_WAIT)
    release_by_force(desk.service, again.names, reason="stuck")
    with pytest.raises(Cancelled):
        announce(desk.service, granted)
    with pytest.raises(LeaseLost, match=r"\(released by force by job/1: stuck\)"):
        announce(desk.service, again)


def test_what_is_taken_back_is_forgotten_if_nobody_has_ever_known_the_handle(
    desk: Desk, granted: Handle
) -> None:
    take_back(desk.service, granted)
    assert desk.held() == {}
    assert desk.service.handles.load(granted.id) is None


def test_else_it_is_released_and_can_be_reacquired(desk: Desk, granted: Handle) -> None:
    announce(desk.service, granted)
    take_back(desk.service, reacquire(desk.service, granted.id, patience=NO_WAIT))
    assert desk.held() == {}
    assert desk.record(granted).state == "released"
    assert desk.reacquire(granted).acquisition == 3
