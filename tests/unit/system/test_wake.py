"""leasectl.system.wake"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.errors import Interrupted
from leasectl.model import Process
from leasectl.system.clock import boottime_seconds
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.poll import Interrupt, milliseconds, sleep
from leasectl.system.process import identify, this_process
from leasectl.system.process_watch import ProcessWatch


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[NamedPipe]:
    pipe = NamedPipe(str(tmp_path / "pipe"))
    yield pipe
    pipe.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def knock(pipe: NamedPipe) -> None:
    os.close(os.open(pipe.path, os.O_WRONLY | os.O_NONBLOCK))


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


class TestProcessWatch:
    def test_the_end_of_a_process_is_seen(self, child: subprocess.Popen[bytes]) -> None:
        watch = ProcessWatch()
        assert watch.update([identify(child.pid)]) is False
        (fd,) = watch.fds()
        child.kill()
        until = boottime_seconds() + 5
        assert sleep(wake_fds={fd}, interrupts=(), until=until, now=boottime_seconds) == {fd}
        watch.close()

    def test_one_that_has_ended_before_is_told_at_once(
        self, child: subprocess.Popen[bytes]
    ) -> None:
        name = identify(child.pid)
        child.kill()
        child.wait()
        watch = ProcessWatch()
        assert watch.update([name]) is True
        assert watch.fds() == set()

    def test_one_that_can_not_be_seen_has_not_ended(self) -> None:
        foreign = this_process()._replace(pid_namespace=1)
        watch = ProcessWatch()
        assert watch.update([foreign]) is False
        assert watch.fds() == set()

    def test_those_that_stay_keep_their_descriptors(self) -> None:
        before = open_files()
        init: Process = identify(os.getppid())
        watch = ProcessWatch()
        watch.update([this_process()])
        (first,) = watch.fds()
        watch.update([this_process(), init])
        assert first in watch.fds() and len(watch.fds()) == 2
        watch.update([init])
        assert len(watch.fds()) == 1
        watch.close()
        assert open_files() <= before  # threads of others may let go of theirs meanwhile


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
                interrupts=[Interrupt(read, select.POLLIN, interrupt)],
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
