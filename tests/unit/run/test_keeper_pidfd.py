"""leasectl.run.keeper_pidfd: whether a keeper is there, and when that is looked at again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from leasectl.errors import BackendUnreachable, Interrupted
from leasectl.model import Process
from leasectl.run import keeper_pidfd as module
from leasectl.run.keeper_pidfd import KeeperPidfd
from leasectl.state import keeper_process
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from tests.kit.descriptors import leaving_open
from tests.kit.desk import Desk
from tests.kit.forking import child as child
from tests.kit.forking import kill
from tests.kit.waits import wait_readable

START = 1000.0  # of a manual clock
GONE = this_process()._replace(start_time=1)  # whose pid another has by now


@pytest.fixture
def keepers(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Those that live: the first is the one of the state directory."""
    keepers: list[Process] = []
    monkeypatch.setattr(keeper_process, "running", lambda state: next(iter(keepers), None))
    return keepers


@contextlib.contextmanager
def watching(desk: Desk) -> Iterator[KeeperPidfd]:
    watched = KeeperPidfd(desk.service, lock_patience=lambda: 0.25)
    yield watched
    watched.close()


def test_one_that_lives_says_when_it_ends(
    desk: Desk, keepers: list[Process], child: Process
) -> None:
    keepers.append(child)
    with watching(desk) as keeper:
        assert keeper.fd is not None
        assert keeper.look_at is None
        assert not is_readable(keeper.fd, 0)
        kill(child)
        wait_readable(keeper.fd)


@pytest.mark.parametrize(("is_needed", "look_at"), [(False, None), (True, START + 0.3)])
def test_where_there_is_none_it_looks_again_if_one_is_needed(
    desk: Desk, keepers: list[Process], is_needed: bool, look_at: float | None
) -> None:
    desk.pool(1)
    desk.acquire(guard=this_process() if is_needed else None)
    with watching(desk) as keeper:
        assert (keeper.fd, keeper.look_at) == (None, look_at)


def test_another_takes_the_place_of_one_that_has_ended(
    desk: Desk, keepers: list[Process], child: Process
) -> None:
    keepers.append(child)
    with leaving_open(0), watching(desk) as keeper:
        kill(child)
        keepers[:] = [this_process()]
        keeper.look()
        assert keeper.fd is not None
        assert not is_readable(keeper.fd, 0)


def test_what_the_dead_held_is_given_back_where_nobody_else_does(
    desk: Desk, keepers: list[Process]
) -> None:
    desk.pool(1)
    desk.acquire(guard=GONE)
    with watching(desk):
        assert desk.held() == {}


@pytest.mark.parametrize("error", [BackendUnreachable("busy"), Interrupted(15)])
def test_where_that_can_not_be_looked_at_it_is_looked_at_again(
    desk: Desk, keepers: list[Process], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(_: object) -> None:
        raise error

    limits: list[float] = []
    within = desk.state.lock_limit.within

    def limit(seconds: float) -> contextlib.AbstractContextManager[None]:
        limits.append(seconds)
        return within(seconds)

    keepers.append(this_process())
    with contextlib.ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(module, "recover", fail)
            patch.setattr(desk.state.lock_limit, "within", limit)
            keeper = stack.enter_context(watching(desk))
        assert (keeper.fd, keeper.look_at) == (None, START + 0.3)
        assert limits == [0.25]
        keeper.look()
        assert keeper.fd is not None
        assert keeper.look_at is None
