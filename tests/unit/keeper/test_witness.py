"""The keeper as witness: who could claim and doesn't come keeps nobody back for long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from leasectl.engines.rules.membership import Lifetime, join
from leasectl.keeper.log import Log
from leasectl.keeper.rounds import Rounds, open_service
from leasectl.model import Process, Request
from leasectl.state.directory import State
from leasectl.system.process import identify
from leasectl.system.process_watch import ProcessEnds
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.forking import child as child
from tests.kit.forking import ending, fork, kill
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.support import Cli, Started, stop
from tests.kit.waits import eventually


class Keeper:
    """The work of one, in this process."""

    def __init__(self, desk: Desk) -> None:
        self.log = desk.directory / "keeper.log"
        self._desk = desk
        self._state = State.open(str(desk.directory))
        clock = desk.time.clock
        log = Log(str(self.log), clock)
        self._ends = ProcessEnds(100)
        service = open_service(self._state, clock, log)
        self.rounds = Rounds(service, self._ends, log)

    def after(self, seconds: float) -> float | None:
        """Let it go a round after a time; returns in how many seconds it wants the next."""
        self._desk.time.advance(seconds)
        due = self.rounds.go()
        return None if due is None else round(due - self._desk.time.clock.elapsed(), 3)

    def close(self) -> None:
        self._ends.close()
        self._state.close()


@pytest.fixture
def keeper(desk: Desk) -> Iterator[Keeper]:
    desk.pool(1)
    keeper = Keeper(desk)
    yield keeper
    keeper.close()


def suspended(desk: Desk) -> list[int]:
    rows = desk.state.query("SELECT number FROM suspended ORDER BY number")
    return [row["number"] for row in rows]


def call(desk: Desk) -> None:
    with desk.state.transaction():
        desk.state.wake(desk.state.witness_pipe)


def test_one_after_the_other_is_given_ten_seconds_from_when_it_was_seen(
    desk: Desk, keeper: Keeper
) -> None:
    assert keeper.after(0) is None
    desk.put_ticket(1)
    desk.put_ticket(2)
    call(desk)
    assert keeper.after(0) == 1.0  # not at once, where it would be in the way
    assert keeper.after(1) == 10.0
    assert keeper.after(9.9) == 0.1
    assert suspended(desk) == []
    assert keeper.after(0.1) == 10.0
    assert suspended(desk) == [1]
    keeper.after(10)
    assert suspended(desk) == [1, 2]
    assert "suspended ticket 1 of T: pid unknown" in keeper.log.read_text()


def test_between_two_looks_it_hears_nothing_however_often_it_is_called(
    desk: Desk, keeper: Keeper
) -> None:
    keeper.after(0)
    (fd,) = keeper.rounds.fds()
    call(desk)
    assert keeper.after(0) == 1.0
    for _ in range(5):
        call(desk)
        assert keeper.rounds.fds() == []
        keeper.after(0.1)
    keeper.after(0.5)
    assert keeper.rounds.fds() == [fd]


def test_tickets_of_dead_waiters_keep_no_keeper(desk: Desk, keeper: Keeper, child: Process) -> None:
    holder = desk.acquire()
    for number in (1, 2, 3):
        desk.put_ticket(number, child)
    assert keeper.after(0) == 30.0
    assert keeper.after(30) == 30.0
    assert desk.tickets() == [1, 2, 3]
    kill(child)
    assert keeper.after(29.9) == 0.1
    assert keeper.rounds.is_needed()
    keeper.after(0.1)
    assert desk.tickets() == []
    assert not keeper.rounds.is_needed()
    assert set(desk.held().values()) == {holder.id}


def test_tickets_of_many_dead_waiters_are_removed_in_parts(
    desk: Desk, keeper: Keeper, child: Process
) -> None:
    desk.acquire()
    for number in range(1, 202):
        desk.put_ticket(number, child)
    kill(child)
    assert keeper.after(30) == 0.1
    assert len(desk.tickets()) == 201 - 128
    keeper.after(0.1)
    assert desk.tickets() == []


def test_who_was_late_itself_begins_to_count_anew(desk: Desk, keeper: Keeper) -> None:
    desk.put_ticket(1)
    desk.put_ticket(2)
    assert keeper.after(0) == 10.0
    assert keeper.after(600) == 10.0
    assert suspended(desk) == []


def test_somebody_alone_is_left_alone(desk: Desk, keeper: Keeper) -> None:
    desk.put_ticket(1)
    assert keeper.after(0) is None
    assert not keeper.rounds.is_needed()
    desk.put_ticket(2)
    assert keeper.rounds.is_needed()


def test_who_was_served_in_between_is_not_taken_for_one_who_never_came(
    desk: Desk, keeper: Keeper
) -> None:
    desk.put_ticket(1)
    desk.put_ticket(2)
    keeper.after(0)
    desk.state.db.execute("UPDATE resource SET fence = 7")  # somebody had it, and gave it back
    assert keeper.after(10) == 10.0
    assert suspended(desk) == []


def test_the_dead_are_not_waited_for(desk: Desk, keeper: Keeper) -> None:
    for number in (1, 2, 3):
        desk.put_ticket(number)
    desk.state.db.execute("UPDATE ticket SET process = 'gone:1:1:1' WHERE number = 1")
    assert keeper.after(0) == 10.0
    assert desk.tickets() == [2, 3]


def test_what_expires_before_somebody_who_does_not_come_is_seen(desk: Desk, keeper: Keeper) -> None:
    desk.acquire(Request("T", ttl_seconds=30))
    desk.put_ticket(2)
    desk.put_ticket(3)
    assert keeper.after(0) == 30.0
    desk.state.db.execute("UPDATE handle SET state = 'released'")
    assert keeper.after(30) == 10.0
    keeper.after(10)
    assert suspended(desk) == [2]


def test_what_was_ended_by_force_is_free_when_its_guard_ends_although_nobody_comes(
    desk: Desk, keeper: Keeper
) -> None:
    pid = fork(signal.pause)
    holder = desk.acquire()
    keeper.after(0)
    desk.put_ticket(2)
    desk.put_ticket(3)
    desk.service.pools.end_early(holder.id, holder.names, guard=identify(pid), reason="stuck")
    keeper.after(0)
    assert identify(pid) in keeper.rounds.processes()
    keeper.after(1)
    assert desk.state.query("SELECT 1 FROM resource WHERE owner IS NULL") == []
    os.kill(pid, signal.SIGKILL)
    ending(pid)
    for _ in range(13):
        keeper.after(1)
    assert suspended(desk) == [2]
    assert keeper.rounds.processes() == []


def test_a_pipe_that_was_removed_is_made_anew(desk: Desk, keeper: Keeper) -> None:
    keeper.after(0)
    os.unlink(desk.state.witness_pipe)
    assert keeper.after(0) == 1.0
    keeper.after(1)
    assert os.path.exists(desk.state.witness_pipe)


class TestTheProcess:
    """A keeper, and waiters that are commands."""

    def begin(self, cli: Cli) -> Started:
        number = len(cli.waiting())
        waiter = cli.start("acquire", "-q", "-t", "T")
        eventually(lambda: len(cli.waiting()) == number + 1, what="it waits")
        return waiter

    def test_whoever_waits_behind_another_has_one_and_another_if_it_is_killed(
        self, cli: Cli
    ) -> None:
        cli.pool("T", "a")
        cli.hold("T")
        self.begin(cli)
        stop(self.begin(cli).pid, cli.state_dir)
        assert cli.keepers() == []
        self.begin(cli)
        for _ in range(2):
            (pid,) = eventually(cli.keepers, what="there is a witness")
            os.kill(pid, signal.SIGKILL)
            eventually(lambda old=pid: cli.keepers() not in ([], [old]), what="another")  # type: ignore[misc]


def in_pool(desk: Desk) -> list[str]:
    """As it stands, without whatever a look would put right."""
    rows = desk.state.query("SELECT name FROM resource WHERE type = 'T' ORDER BY name")
    return [row["name"] for row in rows]


def joined(desk: Desk, lifetime: Lifetime) -> None:
    desk.service.members.update(
        ["n"], lambda member, pools: join(member, "T", pools, lifetime=lifetime)
    )


def test_a_name_leaves_when_its_time_is_over_though_nobody_looks(
    desk: Desk, keeper: Keeper
) -> None:
    assert keeper.after(0) is None
    assert not keeper.rounds.is_needed()
    joined(desk, Lifetime(ttl_seconds=100.0))
    assert keeper.rounds.is_needed()
    assert keeper.after(0) == 1.0  # it was called
    assert keeper.after(1) == 99.0
    joined(desk, Lifetime(ttl_seconds=100.0))
    keeper.after(1)
    assert keeper.after(97) == 2.0
    assert in_pool(desk) == ["T--00", "n"]
    assert keeper.after(2) is None
    assert in_pool(desk) == ["T--00"]
    assert not keeper.rounds.is_needed()


def test_a_name_leaves_with_the_process_that_it_stays_for_though_nobody_looks(
    desk: Desk, keeper: Keeper
) -> None:
    keeper.after(0)
    pid = fork(signal.pause)
    joined(desk, Lifetime(process=identify(pid)))
    keeper.after(1)
    assert [each.pid for each in keeper.rounds.processes()] == [pid]
    os.kill(pid, signal.SIGKILL)
    ending(pid)
    keeper.after(0)
    keeper.after(1)
    assert in_pool(desk) == ["T--00"]
    assert keeper.rounds.processes() == []
