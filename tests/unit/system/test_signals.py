"""leasectl.system.signals: what blocks without polling, and is ended all the same."""

from __future__ import annotations

import os
import signal
import time

from leasectl.errors import Interrupted
from leasectl.system.signals import SignalTrap
from tests.kit.forking import ending, fork


def test_what_is_a_part_of_something_that_blocks_leaves_that_to_signals() -> None:
    read_fd, write_fd = os.pipe()

    def say_and_block(trap: SignalTrap) -> None:
        trap.interrupting(lambda: None)
        os.write(write_fd, b"!")
        time.sleep(60)

    def work() -> None:
        with SignalTrap() as trap:
            try:
                trap.interrupting(lambda: say_and_block(trap))
            except Interrupted:
                os._exit(42)

    pid = fork(work)
    assert os.read(read_fd, 1)
    os.kill(pid, signal.SIGTERM)
    assert ending(pid, 20.0) == 42
    os.close(read_fd)
    os.close(write_fd)
