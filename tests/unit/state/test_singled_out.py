"""leasectl.state.reads: which handles there is something to be said of."""

from __future__ import annotations

import pytest

from leasectl.model import Request, whole
from leasectl.state import reads
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.process import this_process
from tests.unit.state.held import made

US = this_process()


@pytest.fixture
def state(changing: State) -> State:
    """In a transaction, as those need one that make what is looked at."""
    return changing


def test_those_never_end_that_nobody_follows_and_no_time_ends(state: State) -> None:
    with_ttl = Request("T", ttl_seconds=60.0)
    made(state, "T-1")
    made(state, "T-2", guard=US)
    made(state, "T-3", waiter=US)  # it hasn't told of it
    made(state, "T-4", with_ttl, explicit_ttl=True)
    made(state, "T-5", with_ttl)  # which the keeper renews
    made(state, "T-6", Request("T", scope="test", ttl_seconds=60.0), explicit_ttl=True)
    delayed = made(state, "T-7")
    Handles(state).timers.arm(whole(delayed), 9.0)
    made(state, "T-8", Request("T", labels=(("serve:key", "a"),)), served=True)
    made(state, "T-9", with_ttl, explicit_ttl=True, runner=US)
    Handles(state).release(made(state, "T-a"), now=8.0)
    assert reads.never_ending(state) == ["T-1", "T-5", "T-9"]
    assert reads.on_record_elsewhere(state) == 1


def test_those_of_other_namespaces_are_whose_processes_are_there(state: State) -> None:
    elsewhere = US._replace(pid_namespace=1)
    made(state, "T-1", guard=US, waiter=US)
    made(state, "T-2", guard=elsewhere)
    made(state, "T-3", waiter=elsewhere)
    made(state, "T-4")
    found = reads.of_other_namespaces(state, US.pid_namespace)
    assert found == ["T-2", "T-3"]


def test_those_held_since_before_a_time_got_something_then(state: State) -> None:
    made(state, "T-1", at=100.0)
    made(state, "T-2", at=101.0)
    Handles(state).release(made(state, "T-3", at=1.0), now=8.0)
    assert reads.held_since_before(state, 101.0) == ["T-1"]


def test_names_on_record_are_in_the_order_of_the_grant(state: State) -> None:
    made(state, "T-2", Request("T", count=2))
    made(state, "T-1", waiter=US)
    made(state, "T-3", adopted_claim="somebody")
    assert list(reads.names_on_record(state)) == [
        ("T-1", False, ("T-1--00",)),
        ("T-2", True, ("T-2--00", "T-2--01")),
    ]
