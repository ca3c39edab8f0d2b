"""leasectl.run.supervision: what has come by the time that the command would begin."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from leasectl.errors import Interrupted
from leasectl.model import Request
from leasectl.run.child import Child
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
