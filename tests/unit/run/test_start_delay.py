"""A lease in hand whose command doesn't start yet, and may never."""

from __future__ import annotations

import contextlib
import os

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled, Interrupted, LeaseLost
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.release_forced import release_by_force
from leasectl.model import Handle, Request, whole
from leasectl.run import start_delay as module
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.start_delay import hold_back, wait_to_start
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.process import this_process
from tests.kit.descriptors import leaving_open
from tests.kit.desk import Desk

pytestmark = pytest.mark.usefixtures("keeper")

HOUR = 3600.0
TTL = 30.0
START = 1000.0  # of a manual clock


def acquired(desk: Desk, *, ttl: float | None = None) -> Handle:
    desk.pool(1)
    request = Request("T", ttl_seconds=ttl)
    return acquire(desk.service, request, patience=Patience(), followed=True)


@pytest.fixture
def slept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sleeps: it is the time that they would wake at."""

    def sleep(*, until: float, **_: object) -> set[int]:
        desk.time.advance(until - desk.time.clock.elapsed())
        return set()

    monkeypatch.setattr(module, "sleep", sleep)


def expiry(desk: Desk) -> float | None:
    """When the lease runs out, as the pool has it."""
    ((expires_at,),) = desk.state.query("SELECT expires_at FROM resource")
    return None if expires_at is None else float(expires_at)


def test_nothing_stays_open_of_what_was_held_back(desk: Desk) -> None:
    desk.pool(1)
    handle = acquire(desk.service, Request("T", ttl_seconds=30.0), patience=Patience())
    with leaving_open(0):
        hold_back(desk.service, handle, 0, ())


def test_the_end_of_the_command_comes_before_the_release_that_came_of_it(desk: Desk) -> None:
    desk.pool(1)
    service = desk.service
    handle = acquire(service, Request("T"), patience=Patience(), followed=True)
    announce(service, handle, guard=this_process(), runner=this_process())
    read, write = os.pipe()  # hangs up when "the command" ends
    with contextlib.closing(LeaseWatch(service, handle, renewed_at=0.0)) as watch:
        release(service, whole(handle))
        with pytest.raises(Cancelled):
            wait_to_start(watch, 60, (), ended_by=read)
        os.close(write)
        wait_to_start(watch, 60, (), ended_by=read)
    os.close(read)


@pytest.mark.parametrize("ttl", [None, TTL])
def test_what_was_granted_long_ago_has_its_full_time_first(desk: Desk, ttl: float | None) -> None:
    handle = acquired(desk, ttl=ttl)
    desk.time.advance(20)
    hold_back(desk.service, handle, 0, ())
    assert expiry(desk) == (None if ttl is None else START + 20 + TTL)


@pytest.mark.usefixtures("slept")
def test_a_lease_is_renewed_meanwhile_however_long_that_is(desk: Desk) -> None:
    handle = acquired(desk, ttl=TTL)
    hold_back(desk.service, handle, 65, ())
    assert desk.time.clock.elapsed() == START + 65
    assert expiry(desk) == START + 60 + TTL  # the last third began then


def test_what_was_taken_is_waited_with_no_longer(desk: Desk) -> None:
    handle = acquired(desk)
    release_by_force(desk.service, handle.names, reason="stuck")
    with pytest.raises(LeaseLost, match=r"T was lost \(.*: stuck\) before anything was started"):
        hold_back(desk.service, handle, HOUR, ())


def test_what_is_taken_before_the_watch_has_heard_of_it_is_lost_and_not_released(
    desk: Desk,
) -> None:
    handle, clock = acquired(desk), desk.time.clock
    with contextlib.closing(LeaseWatch(desk.service, handle, renewed_at=0.0)) as watch:
        release_by_force(desk.service, handle.names, reason="stuck")
        assert not watch.is_lost(clock.elapsed())  # it hasn't looked
        with pytest.raises(LeaseLost):
            wait_to_start(watch, HOUR, ())


def test_what_interrupts_it_ends_it_and_nobody_listens_any_more(desk: Desk) -> None:
    def interrupt() -> None:
        raise Interrupted(15)

    handle = acquired(desk)
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(Interrupted):
        ends = (Interrupt(read, READABLE, interrupt),)
        hold_back(desk.service, handle, HOUR, ends)
    os.close(read)
    assert os.listdir(desk.state.path("waiters")) == []
