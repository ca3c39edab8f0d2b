"""SIGCHLD ignored on entry, as `trap '' CHLD` and some daemons leave it."""

from __future__ import annotations

import os

import pytest

from tests.kit.support import Cli, Finished, eventually

IGNORED = "SIGCHLD is ignored"


@pytest.fixture
def pool(cli: Cli) -> str:
    cli.pool("T", "T--00")
    return "T"


def ignoring(cli: Cli, *args: str) -> Finished:
    return cli.spawn(["bash", "-c", 'trap "" CHLD; exec "$@"', "-", *cli.command(*args)]).finish()


def test_run_tells_how_its_command_ended(cli: Cli, pool: str) -> None:
    assert ignoring(cli, "run", "-q", "-t", pool, "--", "sh", "-c", "exit 3").code == 3
    attempts = ("--attempts", "2", "--retry-on", "3", "--before-retry", "true")
    finished = ignoring(cli, "run", "-q", "-t", pool, *attempts, "--", "sh", "-c", "exit 3")
    assert finished.code == 3, finished
    assert cli.held() == {}


def test_the_command_gets_what_was_inherited(cli: Cli, pool: str) -> None:
    shows = "import signal; print(signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN)"
    argv = ("run", "-q", "-t", pool, "--", "python3", "-c", shows)
    assert ignoring(cli, *argv).out == "True\n"
    assert cli.ok(*argv) == "False\n"


def test_guards_and_delays_have_their_keeper(cli: Cli, pool: str) -> None:
    guard = cli.spawn(["sleep", "1000"])
    assert ignoring(cli, "acquire", "-t", pool, "--guard-pid", str(guard.pid)).code == 0
    guard.kill()
    eventually(lambda: cli.held() == {}, what="the keeper gives it back")
    assert ignoring(cli, "acquire", "-t", pool, "--release-after", "0.1s").code == 0
    eventually(lambda: cli.held() == {}, what="the keeper gives it back")


def test_doctor_tries_locks_and_descriptors(cli: Cli, pool: str) -> None:
    finished = ignoring(cli, "doctor")
    assert finished.code == 0, finished
    assert os.path.isdir(cli.state_dir)
