"""Sleeping in one poll(2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
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

    def test_can_be_read_at_once_when_its_time_is_over(self, alarm: Alarm) -> None:
        for until in (boottime_seconds() - 1, 0.0, -5.0):
            alarm.set(until)
            (fd,) = alarm.fds
            assert is_readable(fd)

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
