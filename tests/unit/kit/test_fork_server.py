"""Commands that are forked, where a mistake of theirs would fail other tests now and then."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from leasectl.system.process import own_pid_namespace
from tests.kit.support import Cli, Started, eventually


class _Ending(threading.Thread):
    """One of several who end a command."""

    def __init__(self, command: Started) -> None:
        super().__init__()
        self._command = command
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while self._command.process.poll() is None:
                self._command.signal(15)
        except Exception as error:
            self.error = error


def test_one_may_wait_for_its_end_while_others_end_it(cli: Cli) -> None:
    for _ in range(20):
        started = cli.start("run", "--backend", "none:", "T", "--", "sleep", "60")
        others = [_Ending(started) for _ in range(4)]
        for each in others:
            each.start()
        finished = started.finish()
        for each in others:
            each.join()
        assert (finished.code, [each.error for each in others]) == (-15, [None] * 4), finished


@pytest.mark.parametrize("is_forked", [True, False])
def test_their_keeper_is_forked_too_where_nobody_wants_a_program(cli: Cli, is_forked: bool) -> None:
    cli.pool("T")
    cli.forks_keeper = is_forked
    cli.ok("acquire", "-q", "-t", "T", "--release-after", "1h")
    (keeper,) = cli.keepers()
    pipe = cli.state_dir / f"keeper.{own_pid_namespace()}"
    eventually(pipe.exists, what="it has begun, and is what it becomes")
    words = Path(f"/proc/{keeper}/cmdline").read_bytes().split(b"\0")
    assert (b"leasectl.keeper" not in words) is is_forked
    assert os.readlink(f"/proc/{keeper}/cwd") == "/"
    for fd in Path(f"/proc/{keeper}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it works, and has closed that since
            assert not os.readlink(fd).startswith("socket:")
    cli.ok("release", "--all")
    eventually(lambda: cli.keepers() == [], what="it has nothing to keep")
