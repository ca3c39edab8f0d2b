"""What tests of the verbs work on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from leasectl.model import Process
from leasectl.system.process import identify
from tests.kit.desk import desk as desk
from tests.kit.forking import ending, fork
from tests.kit.made_up_server import server as server


@pytest.fixture
def alive() -> Iterator[Process]:
    """Another process."""
    pid = fork(signal.pause)
    yield identify(pid)
    os.kill(pid, signal.SIGKILL)
    ending(pid)
