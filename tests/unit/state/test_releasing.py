"""leasectl.state.timers: which releases are under way on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasectl.state.directory import State
from leasectl.state.timers import GivingBack, begin_anew
from leasectl.system.process import identify, is_dead, this_process

US, INIT = this_process(), identify(1)
DEAD = US._replace(start_time=1)


@pytest.fixture
def under_way(state: State) -> Iterator[GivingBack]:
    with state.transaction():
        yield GivingBack(state, "etcd://here:1 T-1/1")


def test_each_process_is_on_record_for_each_name_once(under_way: GivingBack) -> None:
    for process in (US, INIT, US):
        under_way.start(["a", "b"], process)
    assert (
        sorted(under_way.processes("a")) == sorted(under_way.processes("b")) == sorted([US, INIT])
    )
    assert under_way.processes("c") == []


def test_that_one_is_certain_says_nothing_of_those_who_are_at_it_still(
    under_way: GivingBack,
) -> None:
    for process in (US, INIT, DEAD):
        under_way.start(["a", "b"], process)
    under_way.settled("a", US)
    assert under_way.processes("a") == [INIT]
    assert sorted(under_way.processes("b")) == sorted([US, INIT, DEAD])


def test_who_stops_trying_leaves_what_others_try(under_way: GivingBack) -> None:
    for process in (US, DEAD):
        under_way.start(["a", "b", "c"], process)
    under_way.stopped(["a", "b"], US)
    assert under_way.processes("a") == under_way.processes("b") == [DEAD]
    assert sorted(under_way.processes("c")) == sorted([US, DEAD])


def test_what_is_released_elsewhere_is_another_lease(state: State, under_way: GivingBack) -> None:
    elsewhere = GivingBack(state, "etcd://here:1 T-1/2")
    under_way.start(["a"], US)
    assert elsewhere.processes("a") == []
    elsewhere.start(["a"], US)
    elsewhere.stopped(["a"], US)
    assert under_way.processes("a") == [US]


def test_who_has_become_another_program_releases_nothing_anywhere(
    state: State, under_way: GivingBack
) -> None:
    elsewhere = GivingBack(state, "http://there")
    for releases in (under_way, elsewhere):
        for process in (US, INIT):
            releases.start(["a", "b"], process)
    begin_anew(state, US)
    for releases in (under_way, elsewhere):
        assert releases.processes("a") == releases.processes("b") == [INIT]


def test_who_gives_up_is_as_if_dead(under_way: GivingBack) -> None:
    under_way.start(["a", "b"], US)
    under_way.given_up(["a"], US)
    (process,) = under_way.processes("a")
    assert process != US and is_dead(process)
    assert under_way.processes("b") == [US]


def test_of_what_is_known_the_dead_are_forgotten(under_way: GivingBack) -> None:
    under_way.start(["a", "b"], DEAD)
    under_way.start(["a"], INIT)
    under_way.given_up(["a"], US)
    under_way.forget_dead(["a"])
    assert [under_way.processes(name) for name in "ab"] == [[INIT], [DEAD]]
