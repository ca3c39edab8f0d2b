"""Processes whose end somebody waits for."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from leasectl.model import Process
from leasectl.system.process import identify, this_process
from leasectl.system.process_watch import IdlePidfds, ProcessWatch
from tests.kit.waits import wait_readable


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


class TestProcessWatch:
    def test_the_end_of_a_process_is_seen(self, child: subprocess.Popen[bytes]) -> None:
        watch = ProcessWatch()
        assert watch.update([identify(child.pid)]) is False
        (fd,) = watch.fds()
        child.kill()
        wait_readable(fd)
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


class TestIdlePidfds:
    def test_who_is_waited_for_again_keeps_its_descriptor_and_is_asked_by_it(
        self, child: subprocess.Popen[bytes]
    ) -> None:
        name, idle = identify(child.pid), IdlePidfds()
        first = ProcessWatch(idle)
        first.update([name])
        (fd,) = first.fds()
        first.close()
        second = ProcessWatch(idle)
        assert second.is_dead(name) is False
        assert second.fds() == {fd}
        child.kill()
        child.wait()
        assert second.is_dead(name) is True
        assert second.fds() == set()
        assert ProcessWatch(idle).is_dead(name) is True
        idle.close()

    def test_so_many_are_kept_and_no_more(self) -> None:
        before = open_files()
        with contextlib.ExitStack() as stack:
            idle = IdlePidfds()
            for _ in range(12):
                process = stack.enter_context(subprocess.Popen(["sleep", "1000"]))
                stack.callback(process.kill)
                watch = ProcessWatch(idle)
                watch.update([identify(process.pid)])
                watch.close()
            assert len(open_files() - before) == 8
            idle.close()
        assert open_files() == before
