"""A state directory that is removed, or restored from a backup, while processes use it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from leasectl.errors import StateUnwritable
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system import file_watch
from leasectl.system.file_watch import FileWatch
from leasectl.system.poll import is_readable
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually, wait_readable

LOST, UNWRITABLE = 79, 73


def remove(state_dir: Path) -> None:
    """Remove the directory, also while a keeper that just starts makes its pipe there."""

    def is_gone() -> bool:
        shutil.rmtree(state_dir, ignore_errors=True)
        return not state_dir.exists()

    eventually(is_gone)


def restore(state_dir: Path, backup: Path) -> None:
    """Put a backup of the database in the place of the one in use, beside the same lock."""
    shutil.copy(backup, state_dir / "restored")
    for name in ("state.db-wal", "state.db-shm"):
        (state_dir / name).unlink(missing_ok=True)
    os.rename(state_dir / "restored", state_dir / "state.db")


def back_up(state_dir: Path, backup: Path) -> None:
    source, target = sqlite3.connect(state_dir / "state.db"), sqlite3.connect(backup)
    with contextlib.closing(source), contextlib.closing(target):
        source.backup(target)


@pytest.fixture(params=["removed", "moved", "restored"])
def lose(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> Callable[[], None]:
    """What loses the directory in one of some ways; the backup is taken now."""
    cli.pool("T", "T--00")
    back_up(cli.state_dir, tmp_path / "backup")

    def lose() -> None:
        if request.param == "removed":
            remove(cli.state_dir)
        elif request.param == "moved":
            cli.state_dir.rename(tmp_path / "moved")
        else:
            restore(cli.state_dir, tmp_path / "backup")

    return lose


def waiting(cli: Cli, *args: str) -> Started:
    before = len(cli.waiting())
    started = cli.start("acquire", "-q", "-t", "T", *args)
    eventually(lambda: len(cli.waiting()) > before)
    return started


class TestAWaiter:
    def test_ends_with_73(self, cli: Cli, lose: Callable[[], None]) -> None:
        cli.hold("T")
        first, second = waiting(cli), waiting(cli)
        lose()
        for each in (first, second):
            finished = each.finish()
            assert finished.code == UNWRITABLE, finished
            assert f"state directory {cli.state_dir} was removed or replaced" in finished.err

    def test_goes_on_without_a_lease_if_it_is_optional(self, cli: Cli) -> None:
        cli.pool("T", "T--00")
        cli.hold("T")
        started = cli.start("run", "-q", "-t", "T", "--optional", "--", "echo", "done")
        eventually(cli.waiting)
        remove(cli.state_dir)
        finished = started.finish()
        assert (finished.code, finished.out) == (0, "done\n")
        assert not cli.state_dir.exists()


class TestTheKeeper:
    def test_ends(self, cli: Cli, lose: Callable[[], None]) -> None:
        guard = cli.spawn(["sleep", "1000"])
        cli.ok("acquire", "-q", "-t", "T", "--guard-pid", str(guard.pid))
        (keeper,) = eventually(cli.keepers)
        log = cli.state_dir / "keeper.log"
        eventually(lambda: log.exists() and "started" in log.read_text())
        lose()
        eventually(lambda: not Path(f"/proc/{keeper}").exists())

    def test_that_starts_late_makes_nothing(self, cli: Cli) -> None:
        cli.pool("T")
        with cli.service() as service:
            pid, go = keeper_process._fork_candidate(keeper_process.command(str(cli.state_dir)))
            pidfd = os.pidfd_open(pid)
            remove(cli.state_dir)
            os.close(go)
            wait_readable(pidfd)
            os.close(pidfd)
            assert not cli.state_dir.exists()
            with pytest.raises(StateUnwritable, match="was removed or replaced"):
                keeper_process.ensure(service.state)
        assert not cli.state_dir.exists()


class TestRun:
    def test_treats_a_lease_with_a_ttl_as_lost(
        self, cli: Cli, lose: Callable[[], None], tmp_path: Path
    ) -> None:
        command = f'touch "{tmp_path}/begun"; exec sleep 1000'
        started = cli.start("run", "-t", "T", "--ttl", "60s", "--", "sh", "-c", command)
        eventually((tmp_path / "begun").exists)
        lose()
        finished = started.finish()
        assert finished.code == LOST, finished
        assert f"state directory {cli.state_dir} was removed or replaced" in finished.err

    def test_goes_on_with_a_lease_that_does_not_expire_and_makes_nothing(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        cli.pool("T", "T--00")
        command = "touch begun; while [ ! -e go ]; do sleep 0.1; done; exit 7"
        started = cli.start("run", "-t", "T", "--", "sh", "-c", command)
        eventually((cli.cwd / "begun").exists)
        (keeper,) = eventually(cli.keepers)
        remove(cli.state_dir)
        eventually(lambda: not Path(f"/proc/{keeper}").exists())
        (cli.cwd / "go").touch()
        finished = started.finish()
        assert finished.code == 7
        assert "others may be granted T--00 while" in finished.err
        assert not cli.state_dir.exists()


class TestStateOpen:
    def test_again_is_the_same_or_none(self, cli: Cli) -> None:
        cli.pool("T")
        with contextlib.closing(State.open(str(cli.state_dir))) as state:
            with contextlib.closing(state.open_again()) as again:
                assert not again.was_removed()
            remove(cli.state_dir)
            for _ in range(2):
                assert state.was_removed()
                with pytest.raises(StateUnwritable, match="was removed or replaced"):
                    state.open_again()
                cli.ok("status")  # a fresh command makes another


class TestFileWatch:
    @pytest.mark.parametrize("change", [os.unlink, lambda path: os.rename(path, f"{path}.moved")])
    def test_hears_of_a_file_that_goes(
        self, tmp_path: Path, change: Callable[[Path], None]
    ) -> None:
        path = tmp_path / "file"
        path.touch()
        with path.open(), contextlib.closing(FileWatch([str(path)])) as watch:
            assert watch.fd is not None
            path.write_text("changed")
            assert not is_readable(watch.fd, 0)
            change(path)
            wait_readable(watch.fd)
            watch.clear()
            assert not is_readable(watch.fd, 0)

    def test_looks_every_few_seconds_where_inotify_has_no_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(file_watch, "_inotify", lambda libc, paths: None)
        monkeypatch.setattr(file_watch, "_LOOK_SECONDS", 1)
        with contextlib.closing(FileWatch([str(tmp_path)])) as watch:
            assert watch.fd is not None
            for _ in range(2):
                wait_readable(watch.fd)
                watch.clear()
