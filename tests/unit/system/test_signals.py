"""leasectl.system.signals: what blocks without polling, and is ended all the same."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from leasectl.errors import Interrupted
from leasectl.system.signals import SignalTrap, pause
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
    assert ending(pid) == 42
    os.close(read_fd)
    os.close(write_fd)


def test_second_signal_does_not_strike_what_cleans_up_after_the_first() -> None:
    def block() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # where Python looks for signals
                pass
            os._exit(42)

    def work() -> None:
        with SignalTrap() as trap:
            trap.interrupting(block)

    assert ending(fork(work)) == 42


def test_signals_end_no_pause_of_another_thread() -> None:
    with SignalTrap() as trap:
        os.kill(os.getpid(), signal.SIGTERM)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(pause, 0.01).result()
        assert trap.signum == signal.SIGTERM
        assert not trap.has_raised
