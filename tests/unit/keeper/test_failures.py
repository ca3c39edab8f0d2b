"""A keeper goes on when part of its work fails, and sheds what it inherits from its starter."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from leasectl.keeper.log import Log
from leasectl.keeper.rounds import Rounds, open_service
from leasectl.leases.release import arm
from leasectl.model import Process, Request, whole
from leasectl.state import keeper_process
from leasectl.system.clock import Clock
from leasectl.system.process import identify, this_process
from leasectl.system.process_watch import ProcessEnds
from leasectl.system.request_threads import RequestThreads
from tests.kit.desk import Desk
from tests.kit.forking import child as child
from tests.kit.forking import kill
from tests.kit.support import Cli, Started, clean_environment
from tests.kit.waits import eventually

START = 1000.0
AS_ANOTHER = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def rounds(desk: Desk, log: Path) -> Iterator[Rounds]:
    clock, ends = desk.time.clock, ProcessEnds(100)
    log_ = Log(str(log), clock)
    yield Rounds(open_service(desk.state, clock, log_), ends, log_)
    ends.close()


PARTS = ("_stays", "_unused", "_answers", "_witness", "_renewals")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_holds_up_nothing_else_and_is_tried_again_ever_later(
    desk: Desk, rounds: Rounds, log: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object) -> NoReturn:
        tried.append(desk.time.clock.elapsed())
        raise RuntimeError("can't start new thread")

    tried: list[float] = []
    desk.pool(1)
    handle = desk.acquire()
    arm(desk.service, whole(handle), 20.0)
    monkeypatch.setattr(getattr(rounds, part), "go", fail)
    assert rounds.go() == START + 1
    for _ in range(20):
        desk.time.advance(1.0)
        rounds.go()
    assert tried == [START, START + 1, START + 3, START + 7, START + 15]
    assert desk.held() == {}
    assert log.read_text().count("can't start new thread") == len(tried)


def test_a_release_that_fails_unexpectedly_holds_up_no_other(
    desk: Desk, rounds: Rounds, log: Path, child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(2)
    first, second = desk.acquire(guard=child), desk.acquire(guard=child)
    load = rounds._service.handles.load

    def fail(handle_id: str) -> object:
        if handle_id == first.id:
            raise OSError(24, "Too many open files")
        return load(handle_id)

    monkeypatch.setattr(rounds._service.handles, "load", fail)
    kill(child)
    eventually(lambda: (rounds.go(), second.id not in desk.held().values())[1])
    assert f"can't release {first.id}: unexpected" in log.read_text()
    monkeypatch.undo()
    desk.time.advance(60.0)
    rounds.go()
    assert desk.held() == {}


def test_handle_abandoned_before_the_next_try_of_releases_waits_for_it(
    desk: Desk, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: float) -> NoReturn:
        raise OSError(24, "Too many open files")

    desk.pool(2)
    dead = this_process()._replace(start_time=1)
    with monkeypatch.context() as patch:
        patch.setattr(rounds._service.handles.timers, "due", fail)
        assert rounds.go() == START + 1
        desk.acquire(guard=dead)
        assert rounds.go() == START + 1  # and not at once, again and again
    desk.time.advance(1.0)
    rounds.go()
    assert desk.held() == {}


def test_damaged_record_keeps_no_other_handle_from_being_released(
    desk: Desk, rounds: Rounds, log: Path, child: Process
) -> None:
    desk.pool(3)
    damaged, *others = (desk.acquire(guard=child) for _ in range(3))
    desk.state.db.execute("UPDATE handle SET on_reclaim = 'maybe' WHERE id = ?", (damaged.id,))
    kill(child)
    for _ in range(3):
        rounds.go()
    assert list(desk.held().values()) == [damaged.id]
    said = log.read_text()
    assert said.count(f'holds a bad record of "{damaged.id}"') == 1
    assert said.count("released T") == len(others)


def test_a_renewal_is_tried_again_when_its_record_could_not_be_read(
    desk: Desk, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(1)
    desk.acquire(Request("T", ttl_seconds=30.0), guard=this_process())

    def fail(*_: object) -> NoReturn:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(rounds._service.handles, "current", fail)
        assert rounds.go() == START + 1
    desk.time.advance(1.0)
    assert rounds.go() == START + 1 + 10
    ((expires_at,),) = desk.state.query("SELECT expires_at FROM resource")
    assert expires_at == START + 1 + 30


class TestRequestThreads:
    def test_a_thread_that_can_not_be_started_fails_the_job_which_may_be_sent_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: threading.Thread) -> NoReturn:
            raise RuntimeError("can't start new thread")

        threads: RequestThreads[str, int, int] = RequestThreads(
            lambda _: lambda job: 2 * job, clock=Clock()
        )
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            threads.send("server", 4)
            (outcome,) = threads.outcomes()
            assert "can't start a thread" in str(outcome.error)
            assert not threads.under_way
        threads.send("server", 4)
        (outcome,) = eventually(threads.outcomes)
        assert outcome.result() == 8
        threads.close()


def started_by(cli: Cli, *how: str) -> int:
    """The pid of a keeper that a command has started which was itself started in some way."""
    cli.pool("T")
    argv = [*how, *cli.command("acquire", "-q", "-t", "T", "--guard-pid", str(os.getpid()))]
    started = cli.spawn(argv).finish()
    assert started.code == 0, started
    (pid,) = eventually(cli.keepers)
    log = cli.state_dir / "keeper.log"
    eventually(lambda: log.exists() and "started" in log.read_text())
    return pid


def limit_of(pid: int, name: str) -> str:
    """What /proc says of a limit: soft, hard, and the unit."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return line[len(name) :]


class TestWhatItInherits:
    def test_soft_limits_are_raised(self, cli: Cli) -> None:
        keeper = started_by(cli, "bash", "-c", 'ulimit -S -f 400 -u 4000; exec "$@"', "bash")
        for limit in ("Max file size", "Max processes"):
            soft, hard = limit_of(keeper, limit).split()[:2]
            assert soft == hard

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be more important again")
    def test_its_priority_is_the_usual_one(self, cli: Cli) -> None:
        choom = 'echo 500 > /proc/self/oom_score_adj; exec nice -n 15 "$@"'
        keeper = started_by(cli, "bash", "-c", choom, "bash")
        assert os.getpriority(os.PRIO_PROCESS, keeper) == 0
        assert Path(f"/proc/{keeper}/oom_score_adj").read_text() == "0\n"


@pytest.fixture
def job(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """Commands of a user that isn't root, which nothing gives back its limits."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    os.chmod(tmp_path, 0o1777)
    for folder in tmp_path.parents:
        if folder.stat().st_mode & 0o077 == 0:  # pytest's own
            os.chmod(folder, 0o755)
    if subprocess.run(
        [*AS_ANOTHER, sys.executable, "-c", ""], stderr=subprocess.DEVNULL
    ).returncode:
        pytest.skip("another user can't run this Python")

    class Job(Cli):
        def command(self, *args: str) -> list[str]:
            return [*AS_ANOTHER, *super().command(*args)]

    job = Job(tmp_path / "of-another", tmp_path, {**clean_environment(), "HOME": "/nonexistent"})
    yield job
    job.close()


class TestLimitsOfAnotherJob:
    """A keeper that isn't root's can't raise them."""

    def test_a_job_without_them_has_a_keeper_without_them(self, job: Cli) -> None:
        job.ok("pool", "create", "T", "--count", "2")
        guard = job.spawn(["sleep", "1000"])
        acquire = job.command("acquire", "-q", "T", "--release-after", "1000s")
        limited = job.spawn(["bash", "-c", 'ulimit -f 400; exec "$@"', "bash", *acquire])
        assert limited.finish().code == 0
        (first,) = eventually(job.keepers)
        assert "409600" in limit_of(first, "Max file size")
        job.ok("acquire", "-q", "T", "--guard-pid", str(guard.pid))
        (second,) = eventually(job.keepers)
        assert second != first
        assert "409600" not in limit_of(second, "Max file size")
        guard.kill()
        eventually(lambda: len(job.held()) == 1)

    def test_one_that_may_not_write_ends(self, job: Cli) -> None:
        job.ok("pool", "create", "T", "--count", "1")
        guard = job.spawn(["sleep", "1000"])
        acquire = job.command("acquire", "-q", "T", "--guard-pid", str(guard.pid))
        limited = job.spawn(["bash", "-c", 'ulimit -f 400; exec "$@"', "bash", *acquire])
        assert limited.finish().code == 0
        (keeper,) = eventually(job.keepers)
        log = job.state_dir / "keeper.log"
        eventually(lambda: log.exists() and "started" in log.read_text())
        with contextlib.closing(sqlite3.connect(job.state_dir / "state.db")) as db, db:
            db.execute("CREATE TABLE large (content)")  # so that it has to write behind it
            db.execute("INSERT INTO large VALUES (zeroblob(1000000))")
        guard.kill()
        eventually(lambda: not Path(f"/proc/{keeper}").exists())
        assert job.ok("acquire", "-q", "T", "-w", "5m")

    def test_one_that_may_no_longer_write_ends(self, job: Cli) -> None:
        keeper, guard = working_keeper(job)
        subprocess.run([*AS_ANOTHER, "prlimit", "--fsize=0:0", f"--pid={keeper}"], check=True)
        guard.kill()
        eventually(lambda: not Path(f"/proc/{keeper}").exists())
        assert job.ok("acquire", "-q", "T", "-c", "2", "-w", "5m")


def working_keeper(cli: Cli) -> tuple[int, Started]:
    """Start a keeper that releases one lease, and return its pid with the guard of another."""
    cli.ok("pool", "create", "T", "--count", "2")
    first, second = cli.spawn(["sleep", "1000"]), cli.spawn(["sleep", "1000"])
    for guard in (first, second):
        cli.ok("acquire", "-q", "T", "--guard-pid", str(guard.pid))
    first.kill()
    eventually(lambda: len(cli.held()) == 1, what="the keeper works")
    (keeper,) = eventually(cli.keepers)
    return keeper, second


def test_file_size_limit_set_on_a_keeper_is_lifted_before_its_next_try(cli: Cli) -> None:
    keeper, guard = working_keeper(cli)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    guard.kill()
    eventually(lambda: not cli.held(), what="the guard's lease is released")


def test_a_keeper_with_other_limits_some_higher_some_lower_stays(
    monkeypatch: pytest.MonkeyPatch, child: Process
) -> None:
    its = dict.fromkeys(keeper_process.LIMITS, 100.0)
    own = dict(its)
    monkeypatch.setattr(keeper_process, "_LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(
        keeper_process, "_hard_limits", lambda pid: own if pid == os.getpid() else its
    )
    assert keeper_process.is_fit(child)
    its["Max file size"] = 10.0
    assert not keeper_process.is_fit(child)
    its["Max processes"] = 1000.0
    assert keeper_process.is_fit(child)
    assert keeper_process.is_fit(identify(os.getpid()))


def keeper_from(cli: Cli, script: str) -> Path:
    """Have a shell start a command that starts a keeper; returns the keeper's folder in /proc."""
    cli.pool("T")
    argv = ["bash", "-c", f'{script}; exec "$@"', "bash", *cli.command("acquire", "-q", "-t", "T")]
    started = cli.spawn([*argv, "--guard-pid", str(os.getpid())]).finish()
    assert started.code == 0, started
    (pid,) = eventually(cli.keepers)
    log = cli.state_dir / "keeper.log"
    eventually(lambda: log.exists() and "started" in log.read_text())
    return Path("/proc", str(pid))


def test_what_it_makes_is_private(cli: Cli) -> None:
    keeper = keeper_from(cli, "umask 000")
    assert "Umask:\t0077\n" in (keeper / "status").read_text()
    modes = {path.stat().st_mode & 0o077 for path in cli.state_dir.rglob("*")}
    assert modes == {0}
