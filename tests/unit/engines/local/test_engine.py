"""leasectl.engines.local.engine"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.local.wait_pipes import WaitPipes
from leasectl.errors import NoLease
from leasectl.leases.acquire import acquire
from leasectl.leases.announce import announce
from leasectl.leases.caller import Caller
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.pools.admin import PoolService
from leasectl.state.directory import State
from leasectl.system.clock import boottime_seconds
from leasectl.system.named_pipe import is_read
from leasectl.system.poll import sleep
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk


def waits(service: Service) -> None:
    with pytest.raises(NoLease):
        acquire(service, Request("T"), patience=Patience(wait_seconds=0.001))


def test_who_waits_once_leaves_no_pipe_and_who_waits_often_reuses_one(state_dir: Path) -> None:
    state = State.open(str(state_dir))
    service = Service(state, backend_url="local:", caller=Caller("test@host", "host"))
    service.pools.create_pool("T", ["only"])
    announce(service, acquire(service, Request("T"), patience=Patience()))
    pipes = state_dir / "waiters"
    waits(service)
    assert os.listdir(pipes) == []
    waits(service)
    (kept,) = os.listdir(pipes)
    waits(service)
    PoolService(service).show()  # tidies up, and leaves alone what somebody listens to
    assert os.listdir(pipes) == [kept]
    assert is_read(str(pipes / kept))
    state.close()
    assert os.listdir(pipes) == []


def test_what_one_waits_for_by_name_no_other_gets_who_comes_later(desk: Desk) -> None:
    """Also where the one whose turn it is hasn't heard yet that it may come."""
    desk.pool(2)
    for name in ("T--00", "T--01"):
        desk.acquire(Request("T", name=name))
    waiting = desk.acquire_beside(Request("T", name="T--00"))
    desk.state.db.execute("UPDATE resource SET owner = NULL WHERE name = 'T--00'")
    with pytest.raises(NoLease):
        desk.acquire()
    assert not waiting.done() or waiting.result().names == ("T--00",)


def test_grants_of_a_pool_are_numbered(desk: Desk) -> None:
    desk.pool(2)
    desk.pool(1, "U")
    leases = [desk.acquire(Request(each)).leases for each in ("T", "U", "T")]
    assert [each.grant for (each,) in leases] == [1, 1, 2]


def test_a_reused_pipe_has_forgotten_who_woke_it_too_late(state_dir: Path) -> None:
    state = State.open(str(state_dir))
    pipes = WaitPipes(state)
    for _ in range(2):
        pipe = pipes.get()
        pipe.open()
        pipe.close()
    os.close(os.open(state.waiter_pipe(pipe.name), os.O_WRONLY | os.O_NONBLOCK))
    again = pipes.get()
    again.open()
    assert again is pipe
    now = boottime_seconds()
    assert sleep(wake_fds=[again.fd], interrupts=(), until=now, now=boottime_seconds) == set()
    again.close()
    state.close()
