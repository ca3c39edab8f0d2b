"""leasectl.run.leased_command: a child that never becomes its command, and one that does."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled, Interrupted, LeaseLost, StateUnwritable
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, whole
from leasectl.run import leased_command as module
from leasectl.run.child import Child, Ending
from leasectl.run.leased_command import give_back, run_leased
from leasectl.run.plan import Plan
from leasectl.run.supervision import Supervisor
from leasectl.system.process import this_process
from leasectl.system.signals import SignalDescriptor
from tests.kit.descriptors import leaving_open
from tests.kit.desk import Desk
from tests.kit.waits import eventually, result_of

pytestmark = pytest.mark.usefixtures("keeper")

HOUR = 3600.0
TTL = 30.0

Command = Callable[..., Ending]


@pytest.fixture(params=[None, TTL], ids=["for good", "with a ttl"])
def handle(desk: Desk, request: pytest.FixtureRequest) -> Handle:
    desk.pool(1)
    wanted = Request("T", ttl_seconds=request.param)
    return acquire(desk.service, wanted, patience=Patience(), followed=True)


@pytest.fixture
def began(tmp_path: Path) -> Path:
    """Is there when the command has begun."""
    return tmp_path / "began"


@pytest.fixture
def child(began: Path, signals: SignalDescriptor) -> Child:
    argv = ("/bin/sh", "-c", f'echo >"{began}"; exit 3')
    return Child(argv[0], argv, dict(os.environ), signals)


@pytest.fixture
def supervisor(desk: Desk, signals: SignalDescriptor) -> Supervisor:
    plan = Plan(command=("sh",), request=Request("T"))
    return Supervisor(plan, signals, warn=lambda _: None, clock=desk.time.clock)


@pytest.fixture
def command(desk: Desk, handle: Handle, supervisor: Supervisor) -> Command:
    return partial(run_leased, desk.service, handle, supervisor)


def is_gone(child: Child) -> bool:
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
    return True


def test_it_is_the_guard_of_its_lease_while_it_runs(
    desk: Desk, handle: Handle, command: Command, child: Child, began: Path
) -> None:
    assert command(child, "sh", wait_seconds=None) == Ending(3)
    record = desk.record(handle)
    assert record.guard is not None
    assert (record.guard.pid, record.runner) == (child.pid, this_process())
    assert began.exists()
    give_back(desk.service, record, warn=pytest.fail)
    assert desk.held() == {}
    assert desk.service.handles.load(handle.id) is None


def test_of_one_that_has_ended_nothing_stays_open(
    desk: Desk, handle: Handle, command: Command, signals: SignalDescriptor
) -> None:
    with leaving_open(0):
        child = Child("/bin/true", ("true",), {}, signals)
        assert command(child, "true", wait_seconds=None) == Ending(0)
    assert os.listdir(desk.state.path("waiters")) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [(StateUnwritable("no space left"), "no space left"), (MemoryError(), "MemoryError")],
)
def test_what_can_not_be_given_back_now_people_are_told(
    desk: Desk, handle: Handle, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    warned: list[str] = []
    with monkeypatch.context() as broken:
        broken.setattr(module, "finish", full)
        give_back(desk.service, handle, warn=warned.append)
    assert warned == [f"{said}; the keeper keeps trying to release it"]
    assert list(desk.held().values()) == [handle.id]


def test_what_was_released_before_it_follows_begins_nothing(
    desk: Desk, handle: Handle, command: Command, child: Child, began: Path
) -> None:
    release(desk.service, whole(handle))
    with pytest.raises(Cancelled, match="released before it could be used"):
        command(child, "sh", wait_seconds=None)
    assert is_gone(child)
    assert not began.exists()


def test_what_was_lost_before_it_follows_begins_nothing(
    desk: Desk, handle: Handle, command: Command, child: Child, began: Path
) -> None:
    release_by_force(desk.service, handle.names, reason="")
    with pytest.raises(LeaseLost):
        command(child, "sh", wait_seconds=None)
    assert is_gone(child)
    assert not began.exists()


def test_what_runs_out_before_it_begins_is_lost_and_nobody_listens_for_it(
    desk: Desk, supervisor: Supervisor, child: Child, began: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def announce_late(*args: Any, **keywords: Any) -> None:
        announce(*args, **keywords)
        desk.time.advance(TTL)

    desk.pool(1)
    wanted = Request("T", ttl_seconds=TTL)
    handle = acquire(desk.service, wanted, patience=Patience(), followed=True)
    command = partial(run_leased, desk.service, handle, supervisor)
    monkeypatch.setattr(module, "announce", announce_late)
    with pytest.raises(LeaseLost, match="was lost before sh could be started"):
        command(child, "sh", wait_seconds=None)
    assert is_gone(child)
    assert not began.exists()
    assert os.listdir(desk.state.path("waiters")) == []


def test_what_is_released_while_it_is_held_back_begins_nothing(
    desk: Desk, handle: Handle, command: Command, child: Child, began: Path
) -> None:
    def release_what_it_follows(service: Service) -> tuple[str, ...]:
        eventually(lambda: service.handles.require(handle.id).runner == this_process())
        eventually(lambda: service.handles.require(handle.id).guard)
        return release(service, whole(handle))

    released = desk.beside(release_what_it_follows)
    with pytest.raises(Cancelled, match="released before it could be used"):
        command(child, "sh", wait_seconds=None, start_delay_seconds=HOUR)
    assert result_of(released) == handle.names
    assert is_gone(child)
    assert not began.exists()


def test_a_signal_while_it_is_held_back_ends_all(
    handle: Handle, command: Command, child: Child, began: Path
) -> None:
    # Which has a descriptor in this thread; what others have left behind may be there, too.
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        command(child, "sh", wait_seconds=None, start_delay_seconds=HOUR)
    assert is_gone(child)
    assert not began.exists()


def test_one_that_is_killed_before_it_begins_says_how_it_ended(
    desk: Desk, handle: Handle, command: Command, child: Child, began: Path
) -> None:
    os.kill(child.pid, signal.SIGKILL)
    ending = command(child, "sh", wait_seconds=None, start_delay_seconds=HOUR)
    assert ending.signum == signal.SIGKILL
    assert not began.exists()
