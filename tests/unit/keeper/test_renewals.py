"""When the keeper renews, and what it does when that fails: in a time that moves by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.notes import Note
from leasectl.errors import BackendUnreachable
from leasectl.keeper import renewals as module
from leasectl.keeper.log import Log
from leasectl.keeper.renewals import Renewals
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.renewal_threads import Renewed
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.system.process import this_process
from leasectl.system.request_threads import Outcome
from tests.kit.desk import Desk
from tests.kit.made_up_backend import register_made_up

TTL = 30.0
START = 1000.0  # of a manual clock


@pytest.fixture
def log(desk: Desk, tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def renewals(desk: Desk, log: Path) -> Renewals:
    desk.pool(1)
    clock = desk.time.clock
    return Renewals(desk.service, Log(str(log), clock))


@pytest.fixture
def handle(desk: Desk, renewals: Renewals) -> Handle:
    """Of a lease with a ttl that follows a guard."""
    return held(desk, Request("T", ttl_seconds=TTL))


def held(desk: Desk, request: Request) -> Handle:
    handle = acquire(desk.service, request, patience=Patience(), guard=this_process())
    announce(desk.service, handle)
    return desk.record(handle)


def renew(desk: Desk, renewals: Renewals, handle: Handle) -> float | None:
    """Have a handle be seen to, as it is on record, and go on; returns when the next is due."""
    renewals.see_to(handle.id, desk.service.handles.load_watched(handle.id))
    return renewals.go()


def expiry(desk: Desk) -> float | None:
    """When the lease runs out, as the pool has it."""
    ((expires_at,),) = desk.state.query("SELECT expires_at FROM resource")
    return None if expires_at is None else float(expires_at)


def fail(*_: object) -> Handle:
    raise BackendUnreachable("etcd doesn't answer")


class TestEachThirdOfATtl:
    def test_the_first_comes_at_once_and_gives_the_full_time(
        self, desk: Desk, renewals: Renewals, handle: Handle
    ) -> None:
        desk.time.advance(20)
        assert expiry(desk) == START + TTL
        assert renew(desk, renewals, handle) == START + 20 + TTL / 3
        assert expiry(desk) == START + 20 + TTL

    def test_the_first_comes_at_once_however_short_the_machine_has_been_up(
        self, desk: Desk, renewals: Renewals
    ) -> None:
        ttl = 4 * START
        handle = held(desk, Request("T", ttl_seconds=ttl))
        desk.time.advance(1)
        assert renew(desk, renewals, handle) == START + 1 + ttl / 3
        assert expiry(desk) == START + 1 + ttl

    def test_the_next_comes_when_a_third_has_gone_and_not_before(
        self, desk: Desk, renewals: Renewals, handle: Handle
    ) -> None:
        due = renew(desk, renewals, handle)
        desk.time.advance(TTL / 3 - 0.1)
        assert renew(desk, renewals, handle) == due == START + TTL / 3
        assert expiry(desk) == START + TTL
        desk.time.advance(0.1)
        assert renew(desk, renewals, handle) == START + 2 * TTL / 3
        assert expiry(desk) == START + TTL / 3 + TTL


def test_one_that_has_moved_on_since_it_was_looked_at_is_not_renewed(
    desk: Desk, renewals: Renewals, handle: Handle
) -> None:
    watched = desk.service.handles.load_watched(handle.id)
    renew(desk, renewals, handle)
    desk.time.advance(1)
    desk.reacquire(handle)
    desk.time.advance(TTL / 3)
    renewals.see_to(handle.id, watched)
    assert renewals.go() is None
    assert expiry(desk) == START + 1 + TTL


def test_of_several_the_first_says_when_and_each_is_renewed_in_its_time(
    desk: Desk, renewals: Renewals
) -> None:
    desk.pool(2, "U")
    handles = [held(desk, Request("U", ttl_seconds=ttl)) for ttl in (30.0, 60.0)]
    for handle in handles:
        renew(desk, renewals, handle)
    assert renewals.go() == START + 10
    desk.time.advance(10)
    assert renewals.go() == START + 20
    desk.time.advance(10)
    assert renewals.go() == START + 30
    rows = desk.state.query("SELECT expires_at FROM resource WHERE type = 'U' ORDER BY name")
    assert [each for (each,) in rows] == [START + 20 + 30, START + 20 + 60]


class TestFailures:
    def test_each_is_tried_again_after_a_longer_pause_up_to_a_sixth_of_the_ttl(
        self,
        desk: Desk,
        renewals: Renewals,
        handle: Handle,
        log: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(module, "renew", fail)
        for pause in (1.0, 2.0, 4.0, TTL / 6, TTL / 6):
            now = desk.time.clock.elapsed()
            assert renew(desk, renewals, handle) == now + pause
            desk.time.advance(pause - 0.1)
            assert renew(desk, renewals, handle) == now + pause  # nothing was tried
            desk.time.advance(0.1)
        lines = log.read_text().splitlines()
        assert len(lines) == 5
        assert f"can't renew {handle.id}: etcd doesn't answer; next try in 1s" in lines[0]
        assert lines[-1].endswith("next try in 5s")

    def test_success_ends_them(
        self, desk: Desk, renewals: Renewals, handle: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(module, "renew", fail)
            renew(desk, renewals, handle)
        desk.time.advance(1)
        assert renew(desk, renewals, handle) == START + 1 + TTL / 3
        assert expiry(desk) == START + 1 + TTL
        desk.time.advance(TTL / 3)
        monkeypatch.setattr(module, "renew", fail)
        assert renew(desk, renewals, handle) == START + 1 + TTL / 3 + 1  # the first pause again

    def test_what_is_lost_is_said_and_left(
        self, desk: Desk, renewals: Renewals, handle: Handle, log: Path
    ) -> None:
        desk.time.advance(TTL + 1)
        assert renew(desk, renewals, handle) is None
        (line,) = log.read_text().splitlines()
        assert f"handle {handle.id} has lost its lease" in line
        assert "next try" not in line
        assert desk.record(handle).lost


class TestOnAServer:
    """Where threads renew; these do so when they are told to."""

    class Threads:
        fd = 7

        def __init__(self) -> None:
            self.sent: list[Handle] = []
            self.answers: list[tuple[ReleaseTarget, Outcome[str, Renewed]]] = []

        def send(self, handle: Handle) -> None:
            self.sent.append(handle)

        def outcomes(self) -> list[tuple[ReleaseTarget, Outcome[str, Renewed]]]:
            answers, self.answers = self.answers, []
            return answers

    @pytest.fixture
    def threads(self, monkeypatch: pytest.MonkeyPatch) -> Threads:
        threads = self.Threads()
        monkeypatch.setattr(module, "RenewalThreads", lambda state, **_: threads)
        register_made_up(monkeypatch)
        return threads

    @pytest.fixture
    def far(self, desk: Desk, renewals: Renewals, threads: Threads) -> Handle:
        service = desk.as_caller(desk.caller, "madeup://here")
        service.pools.create_pool("T", ["far"])
        handle = acquire(service, Request("T", ttl_seconds=TTL), patience=Patience())
        announce(service, handle, guard=this_process())
        return service.handles.require(handle.id)

    def test_a_thread_is_sent_and_its_answer_recorded(
        self, desk: Desk, renewals: Renewals, far: Handle, threads: Threads
    ) -> None:
        fds = [renewals.fd]
        assert renew(desk, renewals, far) is None
        fds.append(renewals.fd)
        assert (threads.sent, fds) == ([far], [None, threads.fd])
        desk.time.advance(4)
        threads.answers = [(whole(far), Outcome("", START + 1, Renewed(("far",))))]
        renewals.take_outcomes()
        (lease,) = desk.record(far).leases
        assert lease.renew_time == desk.time.clock.wall()
        assert renew(desk, renewals, far) == START + 1 + TTL / 3  # from the sending

    def test_what_is_noted_there_is_told_though_the_answer_can_not_be_recorded(
        self, desk: Desk, threads: Threads, far: Handle, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock, told = desk.time.clock, list[object]()
        renewals = Renewals(
            desk.service,
            Log(str(log), clock),
            noted=lambda handle, notes: told.append((handle, notes)),
        )
        renew(desk, renewals, far)
        note = Note("T", "far", 1, "?")
        threads.answers = [(whole(far), Outcome("", START, Renewed(("far",), (note,))))]
        monkeypatch.setattr(module, "note_renewal", fail)
        renewals.take_outcomes()
        assert told == [(far, (note,))]
        assert renewals.go() == START + 1

    def test_of_what_is_released_before_it_was_due_no_server_is_asked(
        self, desk: Desk, renewals: Renewals, far: Handle, threads: Threads
    ) -> None:
        watched = desk.service.handles.load_watched(far.id)
        release(desk.as_caller(desk.caller, "madeup://here"), whole(far))
        renewals.see_to(far.id, watched)
        assert renewals.go() is None
        assert threads.sent == []

    def test_what_the_server_no_longer_has_is_lost(
        self, desk: Desk, renewals: Renewals, far: Handle, threads: Threads, log: Path
    ) -> None:
        renew(desk, renewals, far)
        threads.answers = [(whole(far), Outcome("", START, Renewed(())))]
        renewals.take_outcomes()
        assert desk.record(far).lost
        assert f"handle {far.id} has lost its lease" in log.read_text()

    def test_what_failed_is_tried_again(
        self, desk: Desk, renewals: Renewals, far: Handle, threads: Threads
    ) -> None:
        renew(desk, renewals, far)
        error = BackendUnreachable("etcd doesn't answer")
        threads.answers = [(whole(far), Outcome("", START, error=error))]
        renewals.take_outcomes()
        assert renew(desk, renewals, far) == START + 1
        desk.time.advance(1)
        renew(desk, renewals, far)
        assert len(threads.sent) == 2

    def test_an_answer_for_an_acquisition_that_is_over_counts_for_nothing(
        self, desk: Desk, renewals: Renewals, far: Handle, threads: Threads
    ) -> None:
        renew(desk, renewals, far)
        late = whole(far)._replace(acquisition=far.acquisition + 1)
        threads.answers = [
            (late, Outcome("", START, Renewed(()))),
            (whole(far), Outcome("", START, Renewed(("far",)))),
        ]
        renewals.take_outcomes()
        assert not desk.record(far).lost
