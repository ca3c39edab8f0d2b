"""Sleeping in one poll(2), and what ends a sleep."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasectl.errors import Interrupted
from leasectl.state.named_pipe import NamedPipe
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import (
    READABLE,
    Alarm,
    Interrupt,
    is_readable,
    is_writable,
    milliseconds,
    sleep,
)
from leasectl.system.signals import SignalTrap, pause
from leasectl.system.wakeup import Wakeup
from tests.kit.forking import ending, fork


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[NamedPipe]:
    pipe = NamedPipe(str(tmp_path / "pipe"))
    yield pipe
    pipe.close()


def knock(pipe: NamedPipe) -> None:
    os.close(os.open(pipe.path, os.O_WRONLY | os.O_NONBLOCK))


class TestSleep:
    def test_ends_when_the_time_has_come(self) -> None:
        until = boottime_seconds() + 0.02
        assert sleep(wake_fds=(), interrupts=(), until=until, now=boottime_seconds) == set()
        assert boottime_seconds() >= until

    def test_an_interrupt_comes_before_a_wake_up(self, pipe: NamedPipe) -> None:
        read, write = os.pipe()
        os.write(write, b"!")
        knock(pipe)

        def interrupt() -> None:
            raise Interrupted(15)

        with pytest.raises(Interrupted):
            sleep(
                wake_fds={pipe.fd},
                interrupts=[Interrupt(read, READABLE, interrupt)],
                until=None,
                now=boottime_seconds,
            )
        os.close(read)
        os.close(write)

    def test_an_interrupt_that_asks_for_nothing_hears_of_errors(self) -> None:
        read, write = os.pipe()

        def interrupt() -> None:
            raise Interrupted(13)

        interrupts = [Interrupt(write, 0, interrupt)]
        now = boottime_seconds()
        assert sleep(wake_fds=(), interrupts=interrupts, until=now, now=boottime_seconds) == set()
        os.close(read)
        with pytest.raises(Interrupted):
            sleep(wake_fds=(), interrupts=interrupts, until=None, now=boottime_seconds)
        os.close(write)

    @pytest.mark.parametrize(
        ("until", "now", "timeout"),
        [(None, 5.0, None), (5.0, 5.0, 0), (4.0, 5.0, 0), (5.0005, 5.0, 1), (1e9, 0.0, 21600000)],
    )
    def test_the_timeout_is_rounded_up_and_bounded(
        self, until: float | None, now: float, timeout: int | None
    ) -> None:
        assert milliseconds(until, now) == timeout


def test_one_descriptor_is_waited_for_as_long_as_was_said() -> None:
    read, write = os.pipe()
    assert not is_readable(read, 0)
    before = boottime_seconds()
    assert not is_readable(read, 0.05)
    assert boottime_seconds() - before >= 0.05
    os.write(write, b"!")
    assert is_readable(read)
    os.close(read)
    os.close(write)


class TestAlarm:
    @pytest.fixture
    def alarm(self) -> Iterator[Alarm]:
        alarm = Alarm()
        yield alarm
        for fd in alarm.fds:
            os.close(fd)

    def test_can_be_read_from_its_time_on(self, alarm: Alarm) -> None:
        until = boottime_seconds() + 0.02
        alarm.set(until)
        (fd,) = alarm.fds
        assert is_readable(fd)
        assert boottime_seconds() >= until

    def test_one_that_was_put_off_is_not_heard(self, alarm: Alarm) -> None:
        alarm.set(boottime_seconds())
        (fd,) = alarm.fds
        assert is_readable(fd)
        alarm.set(boottime_seconds() + 3600)
        assert not is_readable(fd, 0)
        alarm.set(None)
        assert not is_readable(fd, 0)


@pytest.mark.parametrize("seconds", [25 * 86400.0, 1000 * 86400.0, 1e12])
def test_a_wait_of_any_length_can_be_ended(pipe: NamedPipe, seconds: float) -> None:
    knock(pipe)
    assert is_readable(pipe.fd, seconds)
    with open(os.devnull, "wb") as file:
        assert is_writable(file.fileno(), seconds)


class TestWakeup:
    def test_set_twice_it_wakes_once_and_then_no_more(self) -> None:
        wakeup = Wakeup()
        wakeup.set()
        wakeup.set()
        assert wakeup.wait(0)
        wakeup.clear()
        assert not wakeup.wait(0)
        wakeup.close()

    def test_one_that_is_closed_does_not_write_to_who_got_its_number(self) -> None:
        wakeup = Wakeup()
        wakeup.close()
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
        wakeup.set()
        with pytest.raises(BlockingIOError):
            os.read(read_fd, 1)
        os.close(read_fd)
        os.close(write_fd)

    def test_a_pipe_does_where_there_is_no_eventfd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "eventfd", raising=False)
        self.test_set_twice_it_wakes_once_and_then_no_more()
        self.test_one_that_is_closed_does_not_write_to_who_got_its_number()


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
