"""How many pipes a process keeps, and who removes those of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.local import wait_pipes, waiter
from leasectl.engines.local.wait_pipes import WaitPipes
from leasectl.leases.acquire import acquire
from leasectl.leases.release import finish
from leasectl.model import Request
from leasectl.state.directory import State
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
    monkeypatch.setattr(wait_pipes, "_MOST_IDLE", 3)
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
    monkeypatch.setattr(waiter, "_TICKETS_PER_TIDYING", 4)
    desk.pool(1)
    left = []
    for number in range(1, 9):
        os.mkfifo(desk.state.waiter_pipe(f"waiter-dead{number}"))
        handle = acquire(desk.service, Request("T"), patience=Patience(wait_seconds=0))
        finish(desk.service, handle)
        left.append(len(os.listdir(desk.directory / "waiters")))
    assert left == [1, 2, 3, 0, 1, 2, 3, 0]
