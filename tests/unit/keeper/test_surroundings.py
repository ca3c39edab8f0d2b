"""What a keeper makes of the surroundings that it was started in."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
from pathlib import Path

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually


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


def test_it_watches_more_processes_than_a_command_may_have_files(cli: Cli) -> None:
    keeper = keeper_from(cli, "ulimit -S -n 200")
    (line,) = [
        each for each in (keeper / "limits").read_text().splitlines() if "open files" in each
    ]
    soft, hard = line.split()[3:5]
    assert soft == hard == str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def test_what_it_makes_is_private(cli: Cli) -> None:
    keeper = keeper_from(cli, "umask 000")
    assert "Umask:\t0077\n" in (keeper / "status").read_text()
    modes = {path.stat().st_mode & 0o077 for path in cli.state_dir.rglob("*")}
    assert modes == {0}


@pytest.mark.once
def test_what_cant_be_read_is_said_and_looked_at_again(cli: Cli) -> None:
    cli.pool("T")
    guard = cli.spawn(["sleep", "600"])
    cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
    log = cli.state_dir / "keeper.log"
    eventually(lambda: log.exists() and "started" in log.read_text())

    def change(guard: object) -> None:
        with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db, db:
            db.execute("UPDATE handle SET guard = ?", (guard,))

    ((recorded,),) = cli.query("SELECT guard FROM handle")
    change("nonsense")
    guard.kill()
    eventually(lambda: log.read_text().count("can't go on with handles: ") >= 2)
    change(recorded)
    eventually(lambda: cli.held() == {})
    assert log.read_text().count("can't go on with handles: ") < 10  # it didn't spin
