"""leasectl.keeper.rounds: all that is due is done, in one round after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import claim_key_of
from leasectl.errors import BackendUnreachable
from leasectl.keeper.log import Log
from leasectl.keeper.rounds import Rounds, open_service
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.marks import asked_of
from leasectl.leases.release import arm, release
from leasectl.model import Handle, Process, Request, whole
from leasectl.state.uses import Uses
from leasectl.state.watched import MadePool, MadePools
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from leasectl.system.process_watch import ProcessEnds
from tests.kit.desk import Desk
from tests.kit.forking import child as child
from tests.kit.forking import kill
from tests.kit.made_up_backend import MadeUpBackend
from tests.kit.made_up_server import URL, Server
from tests.kit.made_up_server import server as server
from tests.kit.reclaiming import Operator
from tests.kit.waits import eventually

GONE = this_process()._replace(start_time=1)  # whose pid another has by now


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def rounds(desk: Desk, log: Path) -> Iterator[Rounds]:
    clock, ends = desk.time.clock, ProcessEnds(100)
    log_ = Log(str(log), clock)
    yield Rounds(open_service(desk.state, clock, log_), ends, log_)
    ends.close()


def test_what_is_due_is_released_and_the_rest_in_its_time(desk: Desk, rounds: Rounds) -> None:
    desk.pool(3)
    handles = [desk.acquire() for _ in range(3)]
    now = desk.time.clock.elapsed()
    for handle, seconds in zip(handles, (10.0, 20.0, 30.0)):
        arm(desk.service, whole(handle), seconds)
    assert rounds.is_needed()
    assert rounds.go() == now + 10.0
    desk.time.advance(20.0)
    assert rounds.go() == now + 30.0
    assert list(desk.held().values()) == [handles[2].id]
    desk.time.advance(10.0)
    assert rounds.go() is None
    assert desk.held() == {}
    assert not rounds.is_needed()


def test_what_is_armed_is_released_at_once_where_the_machine_goes(
    desk: Desk, rounds: Rounds
) -> None:
    desk.pool(3)
    later, named, plain = desk.acquire(), desk.acquire(), desk.acquire()
    arm(desk.service, whole(later), 1000.0)
    arm(desk.service, whole(named)._replace(names=named.names), 1000.0)
    rounds.fire_timers()
    assert list(desk.held().values()) == [plain.id]


def test_what_the_dead_held_is_released(desk: Desk, rounds: Rounds, log: Path) -> None:
    desk.pool(2)
    dead = desk.acquire(guard=GONE)
    alive = desk.acquire(guard=this_process())
    assert rounds.go() is None
    assert list(desk.held().values()) == [alive.id]
    assert log.read_text().endswith(f"released {dead.id}: T--00\n")
    assert rounds.is_needed()
    release(desk.service, whole(alive))
    assert not rounds.is_needed()


@pytest.mark.parametrize("has_run", [False, True])
def test_what_has_a_ttl_is_renewed_unless_its_run_does(
    desk: Desk, rounds: Rounds, has_run: bool
) -> None:
    desk.pool(1)
    handle = desk.acquire(Request("T", ttl_seconds=30.0), guard=this_process())
    if has_run:
        announce(desk.service, handle, guard=this_process(), runner=this_process())
    now = desk.time.clock.elapsed()
    desk.time.advance(5.0)
    assert rounds.go() == (None if has_run else now + 5.0 + 10.0)
    ((expires_at,),) = desk.state.query("SELECT expires_at FROM resource")
    assert expires_at == (now + 30.0 if has_run else now + 5.0 + 30.0)


@pytest.mark.parametrize("url", ["local:", URL])
def test_a_pool_that_was_made_for_work_goes_with_the_last_who_was_to_see_to_it(
    desk: Desk, server: Server, rounds: Rounds, child: Process, url: str
) -> None:
    service = desk.as_caller(desk.caller, url)
    service.pools.create_pool("V", ["V"])
    with desk.state.transaction():
        MadePools(desk.state).keep(MadePool(url, service.settings, "V", child))
    assert rounds.go() is None
    assert rounds.processes() == [child]
    kill(child)
    eventually(lambda: (rounds.go(), MadePools(desk.state).all() == [])[1])
    assert "V" not in {pool.type for pool in service.pools.pools()}


class TestOnAServer:
    @pytest.fixture
    def handle(self, desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch) -> Handle:
        """Of which a release is due, while the server is away."""
        monkeypatch.setattr(
            MadeUpBackend, "open_renewals", lambda context, terms: lambda claim_key, names: names
        )
        service = desk.as_caller(desk.caller, URL)
        handle = acquire(service, Request("T"), patience=Patience(wait_seconds=0))
        announce(service, handle)
        arm(service, whole(handle), 0.0)

        def away(_: Sequence[str]) -> None:
            raise BackendUnreachable("away")

        server.before_release = away
        return handle

    def until(self, desk: Desk, rounds: Rounds, due: float | None) -> None:
        """Go round after round until threads have said what makes this the next time."""

        def is_so() -> bool:
            found = rounds.go()
            return found == due and not any(is_readable(fd, 0) for fd in rounds.fds())

        eventually(is_so)

    def test_what_failed_is_tried_again(
        self, desk: Desk, server: Server, rounds: Rounds, handle: Handle
    ) -> None:
        self.until(desk, rounds, desk.time.clock.elapsed() + 1.0)
        server.before_release = lambda names: None
        desk.time.advance(1.0)
        eventually(lambda: rounds.go() is None and not rounds.is_needed())
        assert server.asked == [(claim_key_of(handle), ("T--00",))] * 2

    def test_what_a_thread_has_answered_is_told(
        self, desk: Desk, server: Server, rounds: Rounds, handle: Handle, log: Path
    ) -> None:
        service = desk.as_caller(desk.caller, URL)
        asked = acquire(service, Request("T", on_reclaim="answer"), patience=Patience())
        announce(service, asked, guard=this_process())
        (mark,) = Operator(service.notes).mark(asked)
        asked_of(service, whole(asked))
        with desk.state.transaction():  # by a script, which is killed then
            Uses(desk.state).decide(desk.record(asked), asked.names[0], mark.id, is_ready=True)
        rounds.go()
        desk.time.advance(2.0)
        said = f"answered for {asked.id}: {asked.names[0]} ready\n"
        eventually(lambda: (rounds.go(), log.exists() and said in log.read_text())[1])

    def test_what_failed_is_nothing_to_a_handle_that_comes_later(
        self, desk: Desk, server: Server, rounds: Rounds, handle: Handle
    ) -> None:
        self.until(desk, rounds, desk.time.clock.elapsed() + 1.0)
        record = desk.service.handles.require(handle.id)
        with desk.state.transaction():
            desk.service.handles.forget(handle.id, handle.acquisition)
        rounds.go()
        assert len(server.asked) == 1
        with desk.state.transaction():
            desk.service.handles.create(record, remote=True)
            for lease in record.leases:
                desk.service.handles.arrived(record, lease)
            desk.service.handles.timers.arm(whole(record), 0.0)
        # At once: no pause is over, as the clock stands still.
        eventually(lambda: (rounds.go(), len(server.asked) == 2)[1])
