"""A lease in hand whose command doesn't start yet, and may never."""

from __future__ import annotations

import contextlib
import gc
import os

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled
from leasectl.leases.acquire import acquire
from leasectl.leases.announce import announce
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.start_delay import hold_back, wait_to_start
from leasectl.state import keeper_process
from leasectl.system.process import this_process
from tests.kit.desk import Desk


@pytest.fixture(autouse=True)
def keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one, and it lives."""
    monkeypatch.setattr(keeper_process, "running", lambda state: this_process())


def test_nothing_stays_open_of_what_was_held_back(desk: Desk) -> None:
    desk.pool(1)
    handle = acquire(desk.service, Request("T", ttl_seconds=30.0), patience=Patience())
    gc.collect()  # what others left open is closed as it goes, and not meanwhile
    before = os.listdir("/proc/self/fd")
    hold_back(desk.service, handle, 0, (), clock=desk.time.clock)
    assert os.listdir("/proc/self/fd") == before


def test_the_end_of_the_command_comes_before_the_release_that_came_of_it(desk: Desk) -> None:
    desk.pool(1)
    service, clock = desk.service, desk.time.clock
    handle = acquire(service, Request("T"), patience=Patience(), followed=True)
    announce(service, handle, guard=this_process(), runner=this_process())
    read, write = os.pipe()  # hangs up when "the command" ends
    with contextlib.closing(LeaseWatch(service, handle, renewed_at=0.0, clock=clock)) as watch:
        release(service, whole(handle))
        with pytest.raises(Cancelled):
            wait_to_start(service, handle, watch, 60, (), ended_by=read, clock=clock)
        os.close(write)
        wait_to_start(service, handle, watch, 60, (), ended_by=read, clock=clock)
    os.close(read)
