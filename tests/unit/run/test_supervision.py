"""leasectl.run.supervision: what has come by the time that the command would begin."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import cast

import pytest

from leasectl.errors import Interrupted, LeaseLost
from leasectl.model import Request
from leasectl.run.child import Child
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.plan import Plan
from leasectl.run.supervision import Supervisor
from leasectl.system.clock import Clock
from leasectl.system.signals import SignalDescriptor

_SAYS_THAT_IT_HAS_BEGUN = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"


class Arrived(SignalDescriptor):
    """Signals that have arrived by the time that somebody looks.

    Args:
        arrived: Each with whether a process has sent it, and not the terminal.
    """

    def __init__(self, *arrived: tuple[int, bool]) -> None:
        self.fd, self._end = os.pipe()
        self.mask_before = set()
        self._arrived = list(arrived)
        self._interrupted_by = None

    def read(self) -> list[tuple[int, bool]]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._end)


def supervise(signals: Arrived, said: Path) -> int | None:
    argv = [sys.executable, "-c", _SAYS_THAT_IT_HAS_BEGUN, str(said)]
    plan = Plan(
        command=tuple(argv),
        request=Request("T"),
        attempts=1,
        retry_on=frozenset(),
        before_retry=None,
        on_lost="term",
        start_jitter_seconds=0.0,
        optional=False,
        environ=dict(os.environ),
    )
    try:
        child = Child(argv[0], argv, os.environ, signals)
        return Supervisor(plan, signals, warn=print, clock=Clock()).supervise(child).code
    finally:
        signals.close()


@pytest.mark.parametrize("sent_by_a_process", [False, True])
def test_no_command_begins_after_a_signal_that_is_to_end_it(
    tmp_path: Path, sent_by_a_process: bool
) -> None:
    with pytest.raises(Interrupted):  # the terminal's came to nobody else: there was no command
        supervise(Arrived((signal.SIGINT, sent_by_a_process)), tmp_path / "said")
    assert not (tmp_path / "said").exists()


def test_one_that_is_of_no_matter_is_none(tmp_path: Path) -> None:
    assert supervise(Arrived((signal.SIGWINCH, False)), tmp_path / "said") == 0
    assert (tmp_path / "said").exists()


def test_while_there_is_no_command_such_a_signal_ends_a_wait_and_others_do_not() -> None:
    signals = Arrived((signal.SIGWINCH, True))
    supervisor = Supervisor(Plan((), Request("T")), signals, warn=print, clock=Clock())
    supervisor.check()
    signals.close()
    signals = Arrived((signal.SIGTERM, True))
    supervisor = Supervisor(Plan((), Request("T")), signals, warn=print, clock=Clock())
    with pytest.raises(Interrupted):
        supervisor.check()
    signals.close()


class OverdueWatch:
    """Of a lease whose last moment has passed while whoever watches it was stopped."""

    subject = "T"
    last_moment = 0.0

    def fds(self) -> list[int]:
        return []

    def until(self, now: float) -> float | None:
        return None

    def look(self, woken: Collection[int]) -> None:
        pass

    def is_lost(self, now: float) -> bool:
        return False


def test_a_command_that_was_killed_in_time_has_lost_its_lease_and_not_failed() -> None:
    signals, argv = Arrived((signal.SIGWINCH, False)), ("/bin/sleep", "60")
    plan = Plan(argv, Request("T"), environ=dict(os.environ))
    child = Child(argv[0], argv, os.environ, signals, ends_with_us=True)
    watch = cast(LeaseWatch, OverdueWatch())
    try:
        with pytest.raises(LeaseLost):
            Supervisor(plan, signals, warn=print, clock=Clock()).supervise(child, watch)
    finally:
        child.let_go()
        signals.close()
