"""leasectl.state.uses: what is in use of a handle, and what others want back of it."""

from __future__ import annotations

import pytest

from leasectl.model import Handle, ReleaseTarget
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.uses import LastUse, SeenMark, SeenName, Uses
from leasectl.system.process import this_process
from tests.unit.state.held import made

NAME = "T-1--00"
MARK = SeenMark("0123456789abcdef", "ops@desk", 100.0, is_ready=False)


@pytest.fixture
def state(changing: State) -> State:
    """In a transaction, as each of these needs one."""
    return changing


@pytest.fixture
def handle(state: State) -> Handle:
    """The second acquisition, which holds a name."""
    return made(state, "T-1", acquisition=2)


@pytest.fixture
def uses(state: State) -> Uses:
    return Uses(state)


@pytest.fixture
def former(handle: Handle) -> Handle:
    """The same in the eyes of who hasn't heard that it was acquired again."""
    return handle._replace(acquisition=1)


def is_watched(state: State) -> bool:
    ((watched,),) = state.query("SELECT watched FROM handle")
    return bool(watched)


def test_what_is_in_use_is_until_it_ends(uses: Uses, handle: Handle, former: Handle) -> None:
    assert uses.last() == {}
    uses.begin(handle, NAME)
    assert uses.in_use(handle) == {NAME}
    assert uses.in_use(former) == frozenset()
    assert uses.last() == {("T-1", NAME): LastUse(2, None)}
    assert not uses.end("T-1", "T-1--01", now=9.0)
    assert uses.end("T-1", NAME, now=9.0)
    assert not uses.end("T-1", NAME, now=10.0)
    assert uses.in_use(handle) == frozenset()
    assert uses.last() == {("T-1", NAME): LastUse(2, 9.0)}
    uses.begin(handle, NAME)
    assert uses.last() == {("T-1", NAME): LastUse(2, None)}


def test_a_mark_is_of_one_acquisition(uses: Uses, handle: Handle, former: Handle) -> None:
    uses.see(handle, NAME, MARK)
    assert (uses.marks(handle), uses.marks(former)) == ({NAME: MARK}, {})
    assert uses.all_seen() == [SeenName(ReleaseTarget("T-1", 2, (NAME,)), MARK)]
    another = MARK._replace(id="another")
    uses.see(handle, NAME, another)
    uses.forget(handle, NAME, MARK.id)
    uses.forget(former, NAME, another.id)
    assert uses.marks(handle) == {NAME: another}
    uses.forget(handle, NAME, another.id)
    assert uses.all_seen() == []


def test_what_is_in_use_can_not_become_ready(uses: Uses, handle: Handle, former: Handle) -> None:
    uses.see(handle, NAME, MARK)
    uses.begin(handle, NAME)
    assert not uses.decide(handle, NAME, MARK.id, is_ready=True)
    assert uses.ready(handle) == frozenset()
    assert uses.decide(handle, NAME, MARK.id, is_ready=False)
    uses.end("T-1", NAME, now=9.0)
    assert not uses.decide(handle, NAME, "another", is_ready=True)
    assert not uses.decide(former, NAME, MARK.id, is_ready=True)
    assert uses.decide(handle, NAME, MARK.id, is_ready=True)
    assert uses.ready(handle) == {NAME}
    assert uses.ready(former) == frozenset()
    assert uses.decide(handle, NAME, MARK.id, is_ready=False)
    assert uses.ready(handle) == frozenset()


def test_the_keeper_sees_to_it_only_as_long_as_there_is_a_mark(
    state: State, uses: Uses, handle: Handle
) -> None:
    assert not is_watched(state)
    uses.see(handle, NAME, MARK)
    uses.have_watched(["T-1"])
    uses.let_go(handle)
    assert is_watched(state)
    uses.forget(handle, NAME, MARK.id)
    Handles(state).timers.arm(ReleaseTarget("T-1", 2), 9.0)
    uses.let_go(handle)
    assert is_watched(state)
    state.db.execute("DELETE FROM timer")
    uses.let_go(handle)
    assert not is_watched(state)


def test_of_what_is_held_no_more_nothing_stays(state: State, uses: Uses, handle: Handle) -> None:
    for each in (NAME, "T-1--07"):  # which it doesn't hold
        uses.begin(handle, each)
        uses.see(handle, each, MARK)
    assert uses.of_nobody() == ["T-1"]
    uses.forget_of_nobody("T-1")
    assert uses.of_nobody() == []
    assert uses.in_use(handle) == set(uses.marks(handle)) == {NAME}
    Handles(state).release(handle, now=11.0)
    assert (uses.last(), uses.all_seen()) == ({}, [])


def test_who_is_seen_to_for_other_reasons_is_not_let_go(
    state: State, uses: Uses, handle: Handle
) -> None:
    uses.have_watched([handle.id])
    uses.let_go(handle._replace(waiter=this_process()))  # it acquires, perhaps on a server
    assert is_watched(state)
    uses.let_go(handle)
    assert not is_watched(state)
