"""What commands inherit: ignored signals, a umask, a relative state directory, PYTHONPATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

INSTALLED = str(Path(sys.executable).parent / "leasectl")


@pytest.fixture
def pool(cli: Cli) -> str:
    cli.pool("T", "T--00")
    return "T"


def ignoring(cli: Cli, *args: str) -> Finished:
    return cli.spawn(["bash", "-c", 'trap "" CHLD; exec "$@"', "-", *cli.command(*args)]).finish()


# SIGCHLD ignored on entry, as `trap '' CHLD` and some daemons leave it.


def test_run_tells_how_its_command_ended(cli: Cli, pool: str) -> None:
    assert ignoring(cli, "run", "-q", "-t", pool, "--", "sh", "-c", "exit 3").code == 3
    attempts = ("--attempts", "2", "--retry-on", "3", "--before-retry", "true")
    finished = ignoring(cli, "run", "-q", "-t", pool, *attempts, "--", "sh", "-c", "exit 3")
    assert finished.code == 3, finished
    assert cli.held() == {}


def test_guards_and_delays_have_their_keeper(cli: Cli, pool: str) -> None:
    guard = cli.spawn(["sleep", "1000"])
    assert ignoring(cli, "acquire", "-t", pool, "--guard-pid", str(guard.pid)).code == 0
    guard.kill()
    eventually(lambda: cli.held() == {}, what="the keeper gives it back")
    assert ignoring(cli, "acquire", "-t", pool, "--release-after", "0.1s").code == 0
    eventually(lambda: cli.held() == {}, what="the keeper gives it back")


def in_bash(cli: Cli, script: str, *args: str, **env: str) -> Finished:
    """Run a script; ``"$@"`` in it is leasectl with these arguments."""
    return cli.spawn(["bash", "-c", script, "-", INSTALLED, *args], **env).finish()


@pytest.mark.parametrize("ignored", ["XFSZ", "PIPE"])
def test_command_keeps_a_signal_ignored_that_its_script_ignores(
    cli: Cli, pool: str, ignored: str
) -> None:
    shows = "grep SigIgn: /proc/self/status"
    argv = ("run", "-q", pool, "--", "bash", "-c", shows)
    plain = in_bash(cli, '"$@"; :', *argv)
    kept = in_bash(cli, f'trap "" {ignored}; "$@"; :', *argv)
    assert (plain.code, kept.code) == (0, 0), (plain, kept)
    masks = [int(each.out.split()[1], 16) for each in (plain, kept)]
    number = {"XFSZ": 25, "PIPE": 13}[ignored]
    assert masks == [0, 1 << (number - 1)]


def test_command_started_from_python_gets_the_default_of_what_python_ignores(
    cli: Cli, pool: str
) -> None:
    argv = [INSTALLED, "run", "-q", pool, "--", "grep", "SigIgn:", "/proc/self/status"]
    program = f"import subprocess; subprocess.run({argv})"
    finished = cli.spawn([sys.executable, "-c", program]).finish()
    assert int(finished.out.split()[1], 16) == 0


@pytest.mark.parametrize("umask", ["0777", "0277"])
def test_umask_that_locks_out_its_owner_leaves_a_usable_state_directory(
    cli: Cli, umask: str
) -> None:
    made = in_bash(cli, f'umask {umask}; "$@"', "pool", "create", "T", "--count", "1")
    assert made.code == 0, made
    handle = in_bash(cli, f'umask {umask}; "$@"', "acquire", "T", "--release-after", "1h").handle
    paths = [cli.state_dir, *cli.state_dir.rglob("*")]
    modes = {oct(each.stat().st_mode & 0o777) for each in paths}
    assert modes == {"0o700", "0o600"}
    assert cli.ok("release", "--handle", handle) == "T--00\n"
    # The command gets the umask as it was.
    told = in_bash(cli, f'umask {umask}; "$@"', "run", "-q", "T", "--", "sh", "-c", "umask")
    assert told.out == f"{umask}\n"


def test_command_of_run_finds_the_relative_state_directory_from_elsewhere(
    cli: Cli, pool: str
) -> None:
    relative = os.path.relpath(cli.state_dir, cli.cwd)
    inner = f'cd / && "{INSTALLED}" release --handle "$LEASECTL_HANDLE"'
    finished = in_bash(
        cli, '"$@"', "run", "-q", pool, "--", "sh", "-c", inner, LEASECTL_STATE_DIR=relative
    )
    assert (finished.code, finished.out) == (0, "T--00\n"), finished


def test_other_click_in_pythonpath_changes_nothing(cli: Cli, pool: str, tmp_path: Path) -> None:
    for package in ("click", "yaml", "sqlite3"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('not the one')\n")
    path = f"relative::{tmp_path}"
    argv = ("run", "--optional", "-w", "1m", pool, "--", "printenv", "PYTHONPATH")
    finished = in_bash(cli, '"$@"', *argv, PYTHONPATH=path)
    assert (finished.code, finished.out) == (0, f"{path}\n"), finished
    assert "without a lease" not in finished.err
