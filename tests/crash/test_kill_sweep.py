"""Each command is killed at every one of its calls into the system, while others go on.

Afterwards one ordinary command runs, and everything is as it should be: no repair is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.model import Request
from tests.crash.sweeping import Sweep, among_contenders
from tests.kit.support import Cli


@pytest.fixture
def sweep(cli: Cli, tmp_path: Path) -> Iterator[Sweep]:
    """A sweep among contenders."""
    sweep = Sweep(cli, tmp_path)
    sweep.keep_a_keeper()
    with among_contenders(sweep):
        yield sweep


def test_acquire_can_be_killed_anywhere(sweep: Sweep) -> None:
    guarded = ["--guard-pid", str(os.getpid()), "--release-after", "1h"]
    sweep.kill_everywhere(lambda: ["acquire", "-q", "-t", "T", "-c", "2", *guarded], stride=12)
    names = ["acquire", "-t", "T", "--output", "names"]
    sweep.kill_everywhere(lambda: names, stride=24, at_least=40)


def test_acquire_can_be_killed_anywhere_while_it_holds_back_what_it_got(sweep: Sweep) -> None:
    held_back = ["-c", "2", "--start-jitter", "0.02", "--guard-pid", str(os.getpid())]
    sweep.kill_everywhere(lambda: ["acquire", "-q", "-t", "T", *held_back], stride=24)


def test_release_can_be_killed_anywhere(sweep: Sweep, cli: Cli) -> None:
    def held() -> str:
        with cli.service() as service:
            return sweep.acquire(service, Request("T", count=2, release_after_seconds=3600.0))

    later = ["--delay", "1h", "--detach"]
    sweep.kill_everywhere(lambda: ["release", "--handle", held()], stride=5)
    sweep.kill_everywhere(lambda: ["release", "--handle", held(), *later], stride=18, at_least=30)


def test_reacquire_can_be_killed_anywhere(sweep: Sweep, cli: Cli) -> None:
    def held() -> str:
        with cli.service() as service:
            return sweep.acquire(service, Request("T", count=2, release_after_seconds=3600.0))

    again = ["reacquire", "-q", "--handle"]
    sweep.kill_everywhere(lambda: [*again, held()], stride=12, at_least=32)
