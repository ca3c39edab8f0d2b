"""Named pipes that wake their reader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.state.named_pipe import NamedPipe
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import sleep


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[NamedPipe]:
    pipe = NamedPipe(str(tmp_path / "pipe"))
    yield pipe
    pipe.close()


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
