"""Who reads what a command says may have stopped reading: that keeps nobody from anything."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.support import Cli
from tests.kit.waits import end_of, eventually

_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ; Python 3.9 has no name for it


@pytest.fixture
def full() -> Iterator[int]:
    """A pipe that takes no more, and that nobody reads."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, _SET_PIPE_SIZE, 4096)
    os.set_blocking(write_fd, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_fd, bytes(4096))
    os.set_blocking(write_fd, True)
    yield write_fd
    os.close(write_fd)
    os.close(read_fd)


def start(cli: Cli, *args: str, out: int = subprocess.DEVNULL, err: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        cli.command(*args),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        cwd=cli.cwd,
        env=cli.env,
        start_new_session=True,
    )


def waiting(cli: Cli) -> int:
    with cli.service() as service:
        return len(service.pools.pools("T")[0].queue)


def held(cli: Cli) -> int:
    with cli.service() as service:
        return sum(each.lease is not None for each in service.pools.pools("T")[0].resources)


def test_a_command_is_ended_for_its_lost_lease_whoever_reads_that(
    cli: Cli, full: int, tmp_path: Path
) -> None:
    cli.pool("T", "T--00")
    started, ended = tmp_path / "started", tmp_path / "ended"
    script = f"trap 'touch {ended}; exit 0' TERM; touch {started}; while :; do sleep 0.05; done"
    run = start(cli, "run", "-t", "T", "--", "bash", "-c", script, err=full)
    eventually(started.exists)
    cli.ok("release", "--names", "T--00", "--force")
    eventually(ended.exists)
    assert end_of(run) == 79
    assert held(cli) == 0


@pytest.mark.parametrize("verb", [["acquire"], ["run", "--", "true"]], ids=["acquire", "run"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_wait_whoever_reads_how_it_goes(
    cli: Cli, full: int, verb: list[str], signum: int
) -> None:
    cli.pool("T", "T--00")
    cli.hold("T")
    first, *rest = verb
    waiter = start(cli, first, "-t", "T", *rest, err=full)
    eventually(lambda: waiting(cli) == 1)
    waiter.send_signal(signum)
    assert end_of(waiter) == -signum
    assert waiting(cli) == 0


@pytest.mark.parametrize("more", [[], ["-q"], ["--optional"]], ids=["", "-q", "--optional"])
def test_a_wait_is_over_when_it_is_whoever_reads_that(cli: Cli, full: int, more: list[str]) -> None:
    cli.pool("T", "T--00")
    cli.hold("T")
    waiter = start(cli, "acquire", "-t", "T", "-w", "0.1s", *more, err=full)
    assert end_of(waiter) == (0 if "--optional" in more else 75)


def test_a_signal_ends_who_tells_of_a_lease_and_is_not_heard(cli: Cli, full: int) -> None:
    cli.pool("T", "T--00")
    holder = start(cli, "acquire", "-t", "T", out=full, err=subprocess.DEVNULL)
    eventually(lambda: held(cli) == 1)
    holder.send_signal(signal.SIGTERM)
    assert end_of(holder) == -signal.SIGTERM
    assert held(cli) == 0
