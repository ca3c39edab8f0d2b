"""How many pipes a process keeps, and who removes those of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.local import queues as queues_module
from leasectl.engines.local import waiter as waiter_module
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.waiter import WaitPipes
from leasectl.leases.acquire import acquire
from leasectl.leases.release import finish
from leasectl.model import Claimant, Request
from leasectl.state.directory import State
from leasectl.system.poll import is_readable
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk


@pytest.fixture
def state(state_dir: Path) -> Iterator[State]:
    state = State.open(str(state_dir))
    yield state
    state.close()


def test_of_many_that_are_closed_so_many_are_kept(
    state: State, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter_module, "_MOST_IDLE", 3)
    pipes = WaitPipes(state)
    several = [pipes.get() for _ in range(6)]
    for pipe in several:
        pipe.open()
    assert len(os.listdir(state_dir / "waiters")) == 6
    for pipe in several:
        pipe.close()
    assert len(os.listdir(state_dir / "waiters")) == 3


def test_now_and_then_who_queues_removes_what_the_dead_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "_TICKETS_PER_TIDYING", 4)
    desk.pool(1)
    left = []
    for number in range(1, 9):
        os.mkfifo(desk.state.waiter_pipe(f"waiter-dead{number}"))
        handle = acquire(desk.service, Request("T"), patience=Patience(wait_seconds=0))
        finish(desk.service, handle)
        left.append(len(os.listdir(desk.directory / "waiters")))
    assert left == [1, 2, 3, 0, 1, 2, 3, 0]


def test_a_reused_pipe_wakes_also_if_nobody_has_woken_it_between(state: State) -> None:
    pipes = WaitPipes(state)
    for _ in range(2):
        pipe = pipes.get()
        pipe.open()
        pipe.close()
    writer = os.open(state.waiter_pipe(pipe.name), os.O_WRONLY | os.O_NONBLOCK)
    again = pipes.get()
    again.open()  # while one who will wake it too late is still at it
    assert again is pipe
    assert not is_readable(again.fd, 0)
    os.close(writer)
    assert is_readable(again.fd, 0)
    again.clear()
    assert not is_readable(again.fd, 0)
    with state.transaction():
        assert state.wake(state.waiter_pipe(again.name))
    assert is_readable(again.fd, 0)
    again.close()


def test_a_reused_pipe_that_somebody_has_removed_is_made_again(state: State) -> None:
    pipes = WaitPipes(state)
    for _ in range(2):
        pipe = pipes.get()
        pipe.open()
        pipe.close()
    os.unlink(state.waiter_pipe(pipe.name))
    again = pipes.get()
    again.open()
    with state.transaction():
        assert state.wake(state.waiter_pipe(again.name))
    assert is_readable(again.fd, 0)
    again.close()


def test_who_has_a_pipe_opens_it_before_others_wait_and_asks_nothing_for_that(desk: Desk) -> None:
    desk.pool(1)
    engine = LocalEngine(desk.state, lost=lambda *_: None, clock=desk.service.clock)
    claimant = Claimant("key", "holder", Request("T"), None)
    asked: list[str] = []
    for _ in range(2):  # the first is removed, the second kept
        first = engine.waiter(claimant, until=None)
        first._pipe.open()
        first.close()
    desk.state.db.set_trace_callback(asked.append)
    waiter = engine.waiter(claimant, until=None)
    desk.state.db.set_trace_callback(None)
    assert asked == []
    assert waiter._pipe.is_made
    assert is_readable(waiter._pipe.fd, 0) is False
    waiter.close()


def test_who_comes_to_a_queue_has_its_pipe_before_it_locks_others_out(desk: Desk) -> None:
    """Most get what they ask for at once, and never need one."""
    desk.pool(1)
    engine = LocalEngine(desk.state, lost=lambda *_: None, clock=desk.service.clock)
    claimant = Claimant("key", "holder", Request("T"), None)
    alone = engine.waiter(claimant, until=None)
    assert not alone._pipe.is_made
    alone.close()
    desk.put_ticket(1)
    behind = engine.waiter(claimant, until=None)
    assert behind._pipe.is_made
    behind.close()
    assert os.listdir(desk.directory / "waiters") == []
