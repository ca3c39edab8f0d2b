"""Whose handles are left is told without reading more than that takes."""

from __future__ import annotations

import pytest

from leasectl.leases.recovery import release_abandoned
from leasectl.model import Process, Request
from leasectl.state import leftovers
from leasectl.system.process import is_dead, this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk

GONE = this_process()._replace(start_time=1)  # whose pid another has by now


def test_only_those_whose_guard_or_waiter_is_dead_are_left(desk: Desk) -> None:
    desk.pool(4)
    desk.acquire()
    desk.acquire(guard=this_process())
    guarded, waited = desk.acquire(guard=GONE), desk.acquire()
    only_watched = leftovers.ids_of_the_dead(desk.state, only_watched=True)
    assert only_watched == [guarded.id]
    with desk.state.transaction() as db:
        waiter = (GONE.encode(), waited.id)
        db.execute("UPDATE handle SET waiter = ? WHERE id = ?", waiter)
    assert leftovers.ids_of_the_dead(desk.state) == sorted([guarded.id, waited.id])
    assert leftovers.ids_of_the_dead(desk.state, only_watched=True) == [guarded.id]
    release_abandoned(desk.service)
    assert leftovers.ids_of_the_dead(desk.state) == []
    assert len(desk.held()) == 2


def test_a_process_that_guards_many_is_asked_for_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(20)
    for _ in range(20):
        desk.acquire(guard=this_process())
    asked = []

    def ask(process: Process) -> bool:
        asked.append(process)
        return is_dead(process)

    monkeypatch.setattr("leasectl.system.process.is_dead", ask)
    assert leftovers.ids_of_the_dead(desk.state) == []
    assert asked == [this_process()]


def test_many_handles_are_read_in_as_many_statements_as_one(desk: Desk) -> None:
    desk.pool(20)
    handles = [desk.acquire(Request("T", count=2)) for _ in range(10)]
    said: list[str] = []
    desk.state.db.set_trace_callback(said.append)
    read = desk.service.handles.active()
    desk.state.db.set_trace_callback(None)
    assert sorted(read) == sorted(handles)
    assert len(said) == 2
