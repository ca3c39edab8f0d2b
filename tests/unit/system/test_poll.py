"""Sleeping in one poll(2), and the pipes and wakeups that end it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.errors import Interrupted
from leasectl.system.clock import boottime_seconds
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.poll import (
    READABLE,
    Alarm,
    Interrupt,
    is_readable,
    is_writable,
    milliseconds,
    sleep,
)
from leasectl.system.wakeup import Wakeup


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


def woken(pipe: NamedPipe, *, seconds: float = 0) -> set[int]:
    until = boottime_seconds() + seconds
    return sleep(wake_fds={pipe.fd}, interrupts=(), until=until, now=boottime_seconds)


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


class TestNamedPipe:
    def test_a_renewed_one_keeps_its_number_and_is_not_inherited(self, pipe: NamedPipe) -> None:
        before = pipe.fd
        knock(pipe)
        pipe.renew()
        assert (pipe.fd, os.get_inheritable(pipe.fd)) == (before, False)
        assert woken(pipe) == set()

    def test_opening_and_closing_it_wakes_the_reader(self, pipe: NamedPipe) -> None:
        assert woken(pipe) == set()
        knock(pipe)
        assert woken(pipe, seconds=5) == {pipe.fd}

    def test_a_wake_up_stays_until_it_is_renewed(self, pipe: NamedPipe) -> None:
        knock(pipe)
        assert woken(pipe) == woken(pipe) == {pipe.fd}
        pipe.renew()
        assert woken(pipe) == set()
        knock(pipe)
        assert woken(pipe) == {pipe.fd}

    def test_renewing_leaves_no_descriptor_open(self, pipe: NamedPipe) -> None:
        before = len(open_files())
        for _ in range(3):
            pipe.renew()
        assert len(open_files()) == before

    def test_renewing_a_removed_one_is_harmless(self, pipe: NamedPipe) -> None:
        os.unlink(pipe.path)
        pipe.renew()

    def test_a_leftover_in_its_place_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "left").write_text("x")
        pipe = NamedPipe(str(tmp_path / "left"))
        knock(pipe)
        assert woken(pipe) == {pipe.fd}
        pipe.close()
        assert not (tmp_path / "left").exists()


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
