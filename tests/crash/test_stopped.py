"""Processes that are stopped and continued at any moment, and witnesses that are killed at any.

Time is a clock that only the witness goes by, which passes as fast as the test likes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.local.witness import LocalWitness
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import finish
from leasectl.model import Request
from leasectl.pools import admin
from leasectl.state.directory import State
from leasectl.system.clock import boottime_seconds
from tests.crash.contenders import Choose, Participant, contention
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder, read_history, violations
from tests.kit.invariants import broken_invariants
from tests.kit.killing import EVERY_KILL, kill_at
from tests.kit.support import Cli, ManualClock, stop
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

NAMES = ["T--0", "T--1"]
CHOICES: list[Choose] = [
    lambda _: Request("T"),
    lambda rng: Request("T", count=rng.randint(1, 2)),
    lambda rng: Request("T", name=rng.choice(NAMES)),
]


class Witness:
    """A witness on a clock of its own."""

    def __init__(self, directory: Path) -> None:
        self._time = ManualClock(boottime_seconds())
        self._state = State.open(str(directory))
        self._witness = LocalWitness(self._state, lost=lambda *_: None, clock=self._time.clock)

    def look_for_long(self, recorder: Recorder | None = None) -> list[str]:
        """Look as often as a keeper would in half a minute; the handles that it suspends."""
        suspended = []
        for _ in range(36):
            for able in self._witness.look():
                handle = able.ticket.claim_key
                suspended.append(handle)
                if recorder is not None:
                    # By its clock it was stopped long before whatever has happened since.
                    before = boottime_seconds() - SUSPENDED_AFTER_SECONDS - 1
                    recorder.note("stopped", handle, at=before)
            self._time.advance(0.9)
            time.sleep(0.001)  # the others run as well
        return suspended

    def look_once_it_is_time(self, killed_at: int) -> None:
        """Look, and be killed when that leads to something."""
        self._witness.look()
        self._time.advance(SUSPENDED_AFTER_SECONDS)
        kill_at(killed_at)
        self._witness.look()

    def close(self) -> None:
        self._state.close()


def test_whoever_is_stopped_and_continued_keeps_nobody_and_jumps_no_queue(
    cli: Cli, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    cli.pool("T", *NAMES)
    rng = random.Random(3)
    suspended = 0
    with contention(cli.state_dir, history, CHOICES * 3) as pids:
        recorder = Recorder(history)
        eventually(lambda: len(cli.waiting()) > 3, what="they contend")
        witness = Witness(cli.state_dir)
        for _ in range(25):
            stopped = rng.sample(pids, rng.randint(1, 4))
            for pid in stopped:
                stop(pid, cli.state_dir)
            passed = witness.look_for_long(recorder)
            suspended += len(passed)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            for handle in passed:
                recorder.note("continued", handle)
        witness.close()
    assert suspended > 3
    assert violations(read_history(history), capacity=2) == []
    with cli.service() as service:
        admin.show(service)
    assert broken_invariants(cli.state_dir) == []
    assert cli.query("SELECT * FROM suspended") == []


@contextlib.contextmanager
def one_behind_a_stopped_one(cli: Cli, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The pids of two who wait for what is free: the first is stopped, the second isn't."""

    def wait() -> None:
        participant = Participant(cli.state_dir, tmp_path / "history")
        participant.hold(Request("T", count=2))
        participant.close()

    with cli.service() as service:
        held = acquire(service, Request("T"), patience=Patience())
        announce(service, held)
    pids = []
    for number in (1, 2):
        pids.append(fork(wait))
        eventually(lambda n=number: len(cli.waiting()) == n, what="it waits")  # type: ignore[misc]
    first, second = pids
    stop(first, cli.state_dir)
    with cli.service() as service:
        finish(service, held)
    yield first, second
    os.kill(first, signal.SIGCONT)
    assert ending(first) == 0


def test_a_witness_can_be_killed_anywhere(cli: Cli, tmp_path: Path) -> None:
    cli.pool("T", *NAMES)
    stride = 1 if EVERY_KILL else 6
    for number in itertools.count(1 + sys.version_info[1] % stride, stride):
        with one_behind_a_stopped_one(cli, tmp_path) as (_, second):
            code = ending(fork(lambda n=number: Witness(cli.state_dir).look_once_it_is_time(n)))  # type: ignore[misc]
            assert code in (0, -signal.SIGKILL)
            assert broken_invariants(cli.state_dir) == []
            witness = Witness(cli.state_dir)
            witness.look_for_long()
            assert ending(second) == 0
            witness.close()
        if code == 0:
            break
    assert number > 20


def test_one_that_is_continued_as_it_is_suspended_is_where_it_was(cli: Cli, tmp_path: Path) -> None:
    cli.pool("T", *NAMES)
    for _ in range(8):
        with one_behind_a_stopped_one(cli, tmp_path) as (first, second):
            suspending = fork(lambda: Witness(cli.state_dir).look_once_it_is_time(0))
            os.kill(first, signal.SIGCONT)
            assert (ending(suspending), ending(second)) == (0, 0)
        assert cli.query("SELECT * FROM suspended") == []
        assert broken_invariants(cli.state_dir) == []
