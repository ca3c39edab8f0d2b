"""The ends of many processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from leasectl.model import Process
from leasectl.system import process_watch
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from leasectl.system.process_watch import ProcessEnds
from tests.kit.forking import child as child
from tests.kit.forking import kill
from tests.kit.waits import wait_readable


@pytest.fixture
def ends() -> Iterator[ProcessEnds]:
    ends = ProcessEnds(10)
    yield ends
    ends.close()


def test_an_end_is_told_once_and_known_from_then_on(ends: ProcessEnds, child: Process) -> None:
    ends.follow([child, this_process()])
    assert (ends.take(), is_readable(ends.fd, 0)) == ([], False)
    kill(child)
    wait_readable(ends.fd)
    assert (ends.take(), ends.take()) == ([child], [])
    assert not is_readable(ends.fd, 0)
    assert ends.has_ended(child)
    assert not ends.has_ended(this_process())
    assert not ends.has_ended(None)


def test_who_is_dead_before_is_told_too(ends: ProcessEnds, child: Process) -> None:
    kill(child)
    ends.follow([child])
    assert ends.take() == [child]


def test_one_is_followed_until_everybody_has_left_it(ends: ProcessEnds, child: Process) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ends.follow([child])
    ends.follow([child])
    ends.leave([child])
    assert len(os.listdir("/proc/self/fd")) == before + 1
    ends.leave([child])
    assert len(os.listdir("/proc/self/fd")) == before
    kill(child)
    assert (ends.take(), ends.has_ended(child)) == ([], False)


def test_one_that_cant_be_seen_never_ends(ends: ProcessEnds) -> None:
    foreign = this_process()._replace(pid_namespace=1)
    ends.follow([foreign])
    assert (ends.look(), ends.take(), ends.has_ended(foreign)) == (False, [], False)


def test_those_for_which_there_is_no_room_are_looked_at(child: Process) -> None:
    ends = ProcessEnds(1)
    ends.follow([this_process(), child])
    assert not ends.look()
    kill(child)
    assert (is_readable(ends.fd, 0), ends.take()) == (False, [])
    assert ends.look()
    assert (ends.take(), ends.has_ended(child)) == ([child], True)
    ends.close()


def test_one_for_which_there_is_room_later_is_followed_from_then_on(
    child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(process: Process) -> int:
        raise OSError(24, "Too many open files")

    ends = ProcessEnds(10)
    with monkeypatch.context() as full:
        full.setattr(process_watch, "open_pidfd", none_left)
        ends.follow([child])
    assert not ends.look()
    kill(child)
    wait_readable(ends.fd)
    ends.close()
