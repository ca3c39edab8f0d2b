"""leasectl.keeper.loop: round after round, and what wakes the keeper in between."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Callable, NoReturn

import pytest

from leasectl.errors import StateUnwritable
from leasectl.keeper import loop as module
from leasectl.keeper.rounds import Rounds
from leasectl.leases.release import arm
from leasectl.model import Handle, Process, Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system import afterwards
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, this_process
from leasectl.system.process_watch import ProcessEnds
from tests.kit.desk import Desk
from tests.kit.forking import child as child
from tests.kit.forking import ending, fork, kill
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.support import Cli
from tests.kit.waits import eventually

START = 1000.0  # of a manual clock


class Stopped(BaseException):
    """A test has seen enough."""


class Signals:
    """Those that arrive when a test says so."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()

    def send(self, signum: int) -> None:
        os.write(self._write_fd, bytes([signum]))

    def arrived(self) -> set[int]:
        return set(os.read(self.fd, 100)) if is_readable(self.fd, 0) else set()

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write_fd)


def register(db: sqlite3.Connection, process: Process) -> None:
    keeper_process.note(db, process)


class Keeper:
    """A keeper of a desk's state directory in this process.

    Attributes:
        signals: What it gets.
        rounds: At which times it went one.
        slept: Until when it has slept, each time.
        meanwhile: What happens while it sleeps, one after the other; then it is stopped.
    """

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, *, most: int = 10) -> None:
        self.desk = desk
        self.state = State.open(str(desk.directory))
        self.signals = Signals()
        self.ends = ProcessEnds(most)
        clock = desk.time.clock
        self.loop = module._Loop(self.state, self.signals, self.ends, clock)  # type: ignore[arg-type]
        self.rounds: list[float] = []
        self.slept: list[float] = []
        self.meanwhile: list[Callable[[], object]] = []
        self.go = self.loop._rounds.go
        monkeypatch.setattr(self.loop._rounds, "go", self._go)
        monkeypatch.setattr(module, "sleep", self._sleep)

    def register(self, process: Process) -> None:
        with self.desk.state.transaction() as db:
            register(db, process)

    def run(self, *meanwhile: Callable[[], object]) -> bool:
        """Keep; returns whether it has ended by itself."""
        self.meanwhile = list(meanwhile)
        self.loop._pipe.renew()  # what comes from here on wakes it
        try:
            self.loop.run()
        except Stopped:
            return False
        assert self.meanwhile == []
        return True

    @property
    def log(self) -> list[str]:
        path = self.desk.directory / "keeper.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition("] ")[2] for line in lines]

    @property
    def pipe(self) -> Path:
        return Path(keeper_process.pipe_path(self.desk.state))

    def _go(self) -> float | None:
        self.rounds.append(self.desk.time.clock.elapsed())
        return self.go()

    def _sleep(self, *, wake_fds: Collection[int], until: float, **_: object) -> set[int]:
        if not self.meanwhile:
            raise Stopped
        self.slept.append(until)
        self.meanwhile.pop(0)()
        woken = {fd for fd in wake_fds if is_readable(fd, 0)}
        if not woken:
            self.desk.time.advance(until - self.desk.time.clock.elapsed())
        return woken

    def close(self) -> None:
        self.ends.close()
        self.signals.close()
        self.state.close()


@pytest.fixture
def keeper(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    desk.pool(2)
    keeper = Keeper(desk, monkeypatch)
    keeper.register(this_process())
    yield keeper
    keeper.close()


def armed(desk: Desk, seconds: float) -> Handle:
    handle = desk.acquire()
    arm(desk.service, whole(handle), seconds)
    return handle


def nothing() -> None:
    pass


def test_where_nothing_is_to_be_kept_it_ends_and_there_is_none(desk: Desk, keeper: Keeper) -> None:
    assert keeper.run()
    assert keeper.log == ["started", "ended: no lease needs a keeper"]
    assert desk.state.query("SELECT * FROM keeper") == []
    assert not keeper.pipe.exists()


def test_where_another_is_the_keeper_it_does_nothing(
    desk: Desk, keeper: Keeper, child: Process
) -> None:
    handle = armed(desk, 0.0)
    keeper.register(child)
    assert keeper.run()
    assert keeper.rounds == []
    assert list(desk.held().values()) == [handle.id]
    assert len(desk.state.query("SELECT * FROM keeper")) == 1


def test_it_sleeps_until_something_is_due_and_looks_around_every_five_seconds(
    desk: Desk, keeper: Keeper
) -> None:
    armed(desk, 12.0)
    assert keeper.run(nothing, nothing, nothing)
    assert keeper.slept == [START + 5, START + 10, START + 12]
    assert keeper.rounds == [START, START + 12]
    assert desk.held() == {}


def test_where_nothing_is_due_it_sleeps_as_long_as_there_is_something_to_keep(
    desk: Desk, keeper: Keeper, child: Process
) -> None:
    desk.acquire(guard=child)
    assert not keeper.run(nothing, nothing)
    assert keeper.slept == [START + 5, START + 10]
    assert keeper.rounds == [START]


class TestWhatWakesIt:
    def test_the_end_of_a_guard(self, desk: Desk, keeper: Keeper, child: Process) -> None:
        desk.acquire(guard=child)
        assert keeper.run(lambda: kill(child))
        assert keeper.rounds == [START, START]
        assert desk.held() == {}

    def test_its_pipe_each_time(self, desk: Desk, keeper: Keeper, child: Process) -> None:
        def wake() -> None:
            with desk.state.transaction():
                keeper_process.wake(desk.state)

        desk.acquire(guard=child)
        assert not keeper.run(wake, wake, nothing)
        assert keeper.rounds == [START] * 3
        assert keeper.slept == [START + 5] * 3  # what has woken it doesn't once more

    def test_a_waiter_that_calls_a_witness(
        self, desk: Desk, keeper: Keeper, child: Process
    ) -> None:
        def call() -> None:
            with desk.state.transaction():
                desk.state.wake(desk.state.witness_pipe)

        desk.acquire(guard=child)
        assert not keeper.run(call)
        assert keeper.rounds == [START, START]

    def test_what_has_changed_though_nobody_could_wake_it(
        self, desk: Desk, keeper: Keeper, child: Process
    ) -> None:
        def hasten() -> None:
            with desk.state.transaction() as db:
                db.execute("UPDATE timer SET due = 0")

        desk.acquire(guard=child)
        armed(desk, 60.0)
        assert not keeper.run(nothing, hasten, nothing)
        assert keeper.rounds == [START, START + 10]
        assert len(desk.held()) == 1

    def test_the_end_of_a_guard_whom_there_was_no_room_for_once_it_looks_around(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, child: Process
    ) -> None:
        desk.pool(1)
        with contextlib.closing(Keeper(desk, monkeypatch, most=0)) as keeper:
            keeper.register(this_process())
            desk.acquire(guard=child)
            assert keeper.run(nothing, lambda: kill(child))
            assert keeper.rounds == [START, START + 10]
            assert desk.held() == {}

    def test_that_its_records_can_not_be_read_for_a_while(
        self, desk: Desk, keeper: Keeper, child: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> NoReturn:
            raise StateUnwritable("no space left")

        with monkeypatch.context() as patch:
            desk.acquire(guard=child)
            assert not keeper.run(
                lambda: patch.setattr(keeper.state, "data_version", fail), patch.undo, nothing
            )
        assert keeper.slept == [START + 5, START + 6, START + 11]
        assert keeper.rounds == [START, START + 6]
        assert keeper.log == ["started", "this round failed: no space left"]

    def test_that_its_pipe_is_gone_which_it_makes_anew(
        self, desk: Desk, keeper: Keeper, child: Process
    ) -> None:
        desk.acquire(guard=child)
        assert not keeper.run(keeper.pipe.unlink, nothing, nothing)
        assert keeper.rounds == [START, START + 5]
        assert keeper.pipe.is_fifo()
        assert keeper.log == ["started", "its pipe was gone; created it again"]


class TestWhatFails:
    def test_is_said_and_tried_again_in_a_second(
        self, desk: Desk, keeper: Keeper, child: Process
    ) -> None:
        def full() -> NoReturn:
            raise StateUnwritable("no space left")

        def well() -> None:
            keeper.go = go

        go, keeper.go = keeper.go, full
        desk.acquire(guard=child)
        assert not keeper.run(nothing, well, nothing)
        assert keeper.slept == [START + 1, START + 3, START + 8]
        assert keeper.log == ["started", *["this round failed: no space left"] * 2]

    def test_where_its_code_is_gone_and_no_other_is_there_it_goes_on(
        self, desk: Desk, keeper: Keeper, child: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def replaced() -> NoReturn:
            raise ModuleNotFoundError("No module named 'leasectl.leases.release'")

        def well() -> None:
            keeper.go = go

        monkeypatch.setattr(keeper_process, "command", lambda _: ["/nowhere"])
        go, keeper.go = keeper.go, replaced
        desk.acquire(guard=child)
        assert not keeper.run(well, nothing)
        assert keeper.slept == [START + 1, START + 6]
        assert keeper.log == [
            "started",
            "No module named 'leasectl.leases.release'; the installation was replaced or deleted",
            "handing over to the installed version",
            "the installed version can't be started; this keeper continues",
        ]


class TestSignals:
    def test_by_term_it_releases_what_was_to_be_released_later_and_ends(
        self, desk: Desk, keeper: Keeper, child: Process
    ) -> None:
        armed(desk, 60.0)
        guarded = desk.acquire(guard=child)
        assert keeper.run(lambda: keeper.signals.send(signal.SIGTERM))
        assert list(desk.held().values()) == [guarded.id]
        assert keeper.log[-1] == "ended by TERM"
        assert desk.state.query("SELECT * FROM keeper") == []
        assert not keeper.pipe.exists()

    def test_who_calls_it_holds_the_lock_until_there_is_work(
        self, desk: Desk, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transaction, waited = keeper.state.transaction, []

        def counted() -> contextlib.AbstractContextManager[object]:
            waited.append(keeper.rounds[:])
            return transaction()

        monkeypatch.setattr(keeper.state, "transaction", counted)
        keeper.signals.send(signal.SIGURG)
        armed(desk, 60.0)
        assert not keeper.run(nothing)
        before_the_first = [each for each in waited if each == []]
        assert len(before_the_first) >= 2  # to begin, and for whoever called


class TestTheProgram:
    """Forked, as nothing else here is: it changes what a whole process has of signals and files."""

    @pytest.fixture
    def directory(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
        """With a lease that is to be released by now."""
        monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
        cli.pool("T")
        cli.hold(Request("T", release_after_seconds=0.001))
        return str(cli.state_dir)

    def test_that_is_not_registered_is_not_the_keeper(self, cli: Cli, directory: str) -> None:
        assert ending(fork(lambda: module.main(directory))) == 0
        assert len(cli.held()) == 1
        assert not (cli.state_dir / "keeper.log").exists()

    @pytest.mark.parametrize(("kept", "events"), [("", 1), ("0", 0), ("30d,100", 1), ("?", 1)])
    def test_keeps_such_events_as_are_wanted(
        self, cli: Cli, directory: str, kept: str, events: int
    ) -> None:
        def keep() -> None:
            os.close(go)
            os.read(go_read, 1)
            module.main(directory, kept_events=kept)

        go_read, go = os.pipe()
        pid = fork(keep)
        with cli.service() as service, service.state.transaction() as db:
            register(db, identify(pid))
        os.close(go_read)
        os.close(go)
        assert ending(pid) == 0
        assert cli.held() == {}
        assert cli.query("SELECT count(*) FROM event WHERE kind = 'released'") == [(events,)]

    def test_does_at_once_what_a_command_leaves_for_its_end(
        self, cli: Cli, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def go(_: object) -> None:
            afterwards.leave((tmp_path / "done").touch)
            eventually((tmp_path / "done").exists)

        monkeypatch.setattr(Rounds, "go", go)
        monkeypatch.setattr(Rounds, "is_needed", lambda _: False)
        monkeypatch.setattr(keeper_process, "running", lambda state: this_process())
        monkeypatch.setattr(keeper_process, "begin", lambda state, process: True)
        assert ending(fork(lambda: module.main(directory))) == 0
