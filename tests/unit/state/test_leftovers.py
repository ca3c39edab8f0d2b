"""Whose handles are left is told without reading more than that takes."""

from __future__ import annotations

import os

import pytest

from leasectl.leases.recovery import release_abandoned
from leasectl.model import Process, Request
from leasectl.state import pipes
from leasectl.system.process import is_dead, this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk

GONE = this_process()._replace(start_time=1)  # whose pid another has by now


def test_only_those_whose_guard_or_waiter_is_dead_are_left(desk: Desk) -> None:
    desk.pool(4)
    desk.acquire()
    desk.acquire(guard=this_process())
    guarded, waited = desk.acquire(guard=GONE), desk.acquire()
    only_watched = pipes.ids_of_the_dead(desk.state, only_watched=True)
    assert only_watched == [guarded.id]
    with desk.state.transaction() as db:
        waiter = (GONE.encode(), waited.id)
        db.execute("UPDATE handle SET waiter = ? WHERE id = ?", waiter)
    assert pipes.ids_of_the_dead(desk.state) == sorted([guarded.id, waited.id])
    assert pipes.ids_of_the_dead(desk.state, only_watched=True) == [guarded.id]
    release_abandoned(desk.service)
    assert pipes.ids_of_the_dead(desk.state) == []
    assert len(desk.held()) == 2


@pytest.mark.parametrize("whose", ["guard", "waiter"])
def test_one_whose_process_none_can_be_is_left_for_who_says_what_is_wrong(
    desk: Desk, whose: str
) -> None:
    desk.pool(2)
    desk.acquire(guard=this_process())
    damaged = desk.acquire()
    with desk.state.transaction() as db:
        db.execute(f"UPDATE handle SET {whose} = 'somebody' WHERE id = ?", (damaged.id,))
    assert pipes.ids_of_the_dead(desk.state) == [damaged.id]


def test_of_many_processes_no_more_are_looked_at_than_is_said(desk: Desk) -> None:
    desk.pool(3)
    # Those pids are there, so that only a look tells that they are others' by now.
    gone = [this_process()._replace(pid=pid, start_time=1) for pid in (os.getpid(), os.getppid())]
    handles = sorted(desk.acquire(guard=each).id for each in gone)
    assert pipes.ids_of_the_dead(desk.state) == handles
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=2) == handles
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=1) == handles[:1]
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=0) == []


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
    assert pipes.ids_of_the_dead(desk.state) == []
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
