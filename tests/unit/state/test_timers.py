"""leasectl.state.timers: releases that are due later."""

from __future__ import annotations

import pytest

from leasectl.model import ReleaseTarget
from leasectl.state.directory import State
from leasectl.state.timers import Timers


def target(handle_id: str, *names: str, acquisition: int = 1) -> ReleaseTarget:
    return ReleaseTarget(handle_id, acquisition, names or None, by="delay")


@pytest.fixture
def timers(changing: State) -> Timers:
    timers = Timers(changing)
    timers.arm(target("T-2", "b", "a", acquisition=3), 9.0)
    timers.arm(target("T-1"), 5.0)
    timers.arm(target("T-3"), 7.5)
    return timers


def test_those_are_due_whose_time_has_come(timers: Timers) -> None:
    assert timers.due(4.9) == []
    assert timers.due(5.0) == [target("T-1")]
    assert timers.due(8.0) == [target("T-1"), target("T-3")]
    assert len(timers.due(9.0)) == 4


def test_the_next_is_the_first_that_is_not_due(timers: Timers) -> None:
    assert timers.next_after(0.0) == 5.0
    assert timers.next_after(5.0) == 7.5
    assert timers.next_after(9.0) is None


def test_those_of_no_handle_are_found(timers: Timers) -> None:
    assert sorted(timers.of_nobody()) == ["T-1", "T-2", "T-3"]
