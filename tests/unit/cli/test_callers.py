"""A wait ends when the script ends that it is for: how ``run``, ``acquire`` and ``once`` decide."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.support import Cli, Started, kill
from tests.kit.waits import eventually

INSTALLED = str(Path(sys.executable).parent / "leasectl")
RUN = ("run", "T", "--", "touch", "started")


@pytest.fixture
def handle(cli: Cli) -> str:
    """A handle that holds the only one there is."""
    cli.pool("T", "T--00")
    return cli("acquire", "T", "--release-after", "1h").handle


def waiter(cli: Cli) -> int:
    """Return the pid of the only process in the queue, once there is one."""
    (row,) = eventually(lambda: cli.query("SELECT process FROM ticket"), what="it waits")
    return int(str(row[0]).split(":")[2])


def in_bash(cli: Cli, script: str, *args: str) -> Started:
    return cli.spawn(["bash", "-c", script, "-", INSTALLED, *args])


@contextmanager
def process(pid: int) -> Iterator[int]:
    """A descriptor of a process, which is killed at the end if it is still there."""
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        if not has_ended(pidfd):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def has_ended(pidfd: int) -> bool:
    """Whether a process has ended, also as a zombie that its new parent leaves."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        pid = next(line.split()[1] for line in file if line.startswith("Pid:"))
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    "script",
    [
        '"$@"; :',
        'env A=b "$@"; :',
        '("$@"; :); :',
        'out=$("$@"; :); :',
        'timeout 1h "$@"; :',
        '"$@" | cat; :',
        '"$@" & wait',
    ],
)
def test_run_leaves_the_queue_when_its_script_ends(cli: Cli, handle: str, script: str) -> None:
    bash = in_bash(cli, script, *RUN)
    with process(waiter(cli)) as run:
        kill(bash.pid)
        eventually(lambda: has_ended(run), what="run ends")
    assert cli.query("SELECT * FROM ticket") == []
    cli.ok("release", "--handle", handle)
    assert not (cli.cwd / "started").exists()


@pytest.mark.parametrize("script", ['nohup "$@"; :', 'setsid -w "$@"; :', 'trap "" HUP; "$@"; :'])
def test_detached_run_goes_on_waiting(cli: Cli, handle: str, script: str) -> None:
    bash = in_bash(cli, script, *RUN)
    with process(waiter(cli)) as run:
        kill(bash.pid)
        cli.ok("release", "--handle", handle)
        eventually(lambda: has_ended(run), what="it has run its command")
    assert (cli.cwd / "started").exists()


def test_guard_pid_of_run_names_another_process(cli: Cli, handle: str) -> None:
    guard = cli.spawn(["sleep", "1000"])
    bash = in_bash(cli, '"$@"; :', "run", "T", "--guard-pid", str(guard.pid), *RUN[2:])
    with process(waiter(cli)) as run:
        kill(bash.pid)
        other = in_bash(cli, '"$@"; :', "run", "T", "--", "true")
        eventually(lambda: len(cli.query("SELECT * FROM ticket")) == 2)
        assert not has_ended(run)
        guard.kill()
        eventually(lambda: has_ended(run), what="run ends with its guard")
    cli.ok("release", "--handle", handle)
    assert other.finish().code == 0
    assert not (cli.cwd / "started").exists()


def test_guard_pid_of_run_has_to_be_there(cli: Cli) -> None:
    gone = cli.spawn(["true"])
    gone.finish()
    finished = cli("run", "T", "--guard-pid", str(gone.pid), "--", "true")
    assert (finished.code, finished.out) == (64, "")
    assert f"--guard-pid {gone.pid}: no such process" in finished.err


@pytest.mark.parametrize("optional", [(), ("--optional",)])
def test_script_that_ended_before_run_looked_gets_no_command(
    cli: Cli, optional: tuple[str, ...]
) -> None:
    cli.pool("T", "T--00")
    os.mkfifo(cli.cwd / "go")
    script = '(echo $BASHPID >pid; read <go; exec "$@" 2>err) & '
    bash = in_bash(cli, script, "run", "T", *optional, *RUN[2:])
    bash.process.wait()
    pid = eventually(lambda: (cli.cwd / "pid").exists() and (cli.cwd / "pid").read_text())
    assert pid
    with process(int(pid)) as run:
        (cli.cwd / "go").write_text("\n")
        eventually(lambda: has_ended(run), what="run ends")
    assert not (cli.cwd / "started").exists()
    assert "the process that started this command has ended; " in (cli.cwd / "err").read_text()
    assert cli.held() == {}


def test_script_that_ends_while_run_holds_back_its_command(cli: Cli) -> None:
    cli.pool("T", "T--00")
    bash = in_bash(cli, '"$@"; :', "run", "T", "--start-jitter", "10h", *RUN[2:])
    eventually(lambda: cli.held(), what="it has the lease")
    kill(bash.pid)
    eventually(lambda: cli.held() == {}, what="the lease goes back")
    assert not (cli.cwd / "started").exists()


def test_acquire_leaves_the_queue_when_its_script_ends(cli: Cli, handle: str) -> None:
    bash = in_bash(cli, '"$@" >answer; :', "acquire", "T", "--release-after", "1h")
    with process(waiter(cli)) as acquire:
        kill(bash.pid)
        eventually(lambda: has_ended(acquire), what="acquire ends")
    assert cli.query("SELECT * FROM ticket") == []


def test_once_stops_waiting_when_its_script_ends(cli: Cli) -> None:
    cli.pool("T")
    first = cli.start("once", "work", "--", "sleep", "1000")
    eventually(lambda: cli.held(), what="the first does the work")
    bash = in_bash(cli, '"$@"; :', "once", "work", "--", "touch", "started")
    with process(waiter(cli)) as once:
        kill(bash.pid)
        eventually(lambda: has_ended(once), what="once ends")
    first.kill()
    assert not (cli.cwd / "started").exists()


@pytest.mark.parametrize("around", [("once", "work"), ("run", "T", "--ttl", "1m")])
def test_a_command_of_once_or_run_may_itself_be_leasectl(cli: Cli, around: tuple[str, ...]) -> None:
    for pool in ("T", "U"):
        cli.pool(pool, f"{pool}--00")
    assert cli.ok(*around, "--", INSTALLED, "run", "U", "--", "echo", "done") == "done\n"
