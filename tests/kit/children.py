"""Processes of which only the end counts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from leasectl.model import Process
from leasectl.system import process
from tests.kit.forking import ending, fork


@pytest.fixture
def child() -> Iterator[Process]:
    """One that does nothing; it is gone at the end of the test."""
    pid = fork(signal.pause)
    name = process.identify(pid)
    yield name
    if process.liveness(name) == "alive":
        kill(name)


def kill(child: Process) -> None:
    """KILL one and see it gone."""
    os.kill(child.pid, signal.SIGKILL)
    ending(child.pid)
