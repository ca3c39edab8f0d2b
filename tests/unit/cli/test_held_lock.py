"""``--wait`` is heeded also while another process holds ``state.lock``, and is stopped."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasectl.model import Request
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

NO_LEASE = 75
WAIT_SECONDS = 1.0


@contextmanager
def lock_held(cli: Cli) -> Iterator[None]:
    """As by a process that was stopped in the middle of a transaction."""
    with open(cli.state_dir / "state.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def handle(cli: Cli) -> Path:
    """A handle that holds one of two."""
    cli.pool("T")
    return cli.state_dir / "handles" / cli.hold(Request("T")).id


def assert_in_time(finished: Finished, since: float, code: int = NO_LEASE) -> None:
    assert finished.code == code, finished
    assert f"state.lock was held all the time by process {os.getpid()}" in finished.err
    assert "kill -CONT" in finished.err
    assert time.monotonic() - since >= WAIT_SECONDS


@pytest.mark.parametrize(
    "command",
    [
        ["acquire", "-t", "T"],
        ["run", "-t", "T", "-E", "3", "--", "true"],
        ["reacquire", "--handle", "HANDLE"],
    ],
)
def test_the_wait_ends_in_time(cli: Cli, handle: Path, command: list[str]) -> None:
    command = [str(handle) if word == "HANDLE" else word for word in command]
    since = time.monotonic()
    with lock_held(cli):
        finished = cli(command[0], "-w", f"{WAIT_SECONDS:g}s", *command[1:])
    assert_in_time(finished, since, 3 if "-E" in command else NO_LEASE)
    assert "holds nothing now" not in finished.err
    assert handle.read_text() == "T--00"
    cli.ok("status")
    assert len(cli.held()) == 1


def waits_for_a_lock(pid: int) -> bool:
    """Whether a process is blocked in flock(2): its line in /proc/locks has an arrow."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and str(pid) in line.split() for line in lines)


def test_no_wait_bears_a_lock_that_is_only_busy(cli: Cli, handle: Path) -> None:
    with lock_held(cli):
        acquiring = cli.start("acquire", "-t", "T", "-w", "0")
        eventually(lambda: waits_for_a_lock(acquiring.pid), what="it waits")
        time.sleep(0.1)  # ten times what would do to give up for who doesn't wait at all
    assert acquiring.finish().code == 0


def test_a_waiter_that_cannot_leave_ends_all_the_same(cli: Cli, handle: Path) -> None:
    cli.hold(Request("T"))
    # Three times as long as others wait here: it has to be seen waiting.
    waiter = cli.start("acquire", "-q", "-t", "T", "-w", f"{3 * WAIT_SECONDS:g}s")
    eventually(cli.waiting)
    with lock_held(cli):
        assert waiter.finish().code == NO_LEASE
    cli.ok("status")
    assert cli.waiting() == []
    assert len(cli.held()) == 2


def test_an_optional_lease_is_gone_without(cli: Cli, handle: Path) -> None:
    with lock_held(cli):
        finished = cli("run", "-w", "0", "--optional", "-t", "T", "--", "echo", "installed")
    assert (finished.code, finished.out) == (0, "installed\n")
    assert "continuing without a lease" in finished.err


def test_run_tells_how_its_command_ended(cli: Cli, handle: Path) -> None:
    script = "echo begun; until [ -e go ]; do sleep 0.05; done; exit 4"
    run = cli.start("run", "-q", "-t", "T", "--", "sh", "-c", script)
    assert run.process.stdout is not None
    assert run.process.stdout.readline() == "begun\n"
    with lock_held(cli):
        (cli.cwd / "go").touch()
        finished = run.finish()
    assert finished.code == 4
    assert "the keeper keeps trying" in finished.err
    eventually(lambda: len(cli.held()) == 1, what="the keeper gives it back")
