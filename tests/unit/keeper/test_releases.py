"""How the keeper releases: here at once, on servers by threads, again and again if need be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.keeper import releases as module
from leasectl.keeper.job import key_meant
from leasectl.keeper.log import Log
from leasectl.keeper.releases import Releases
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, Request, whole
from tests.kit.desk import Desk
from tests.kit.made_up_backend import register_made_up
from tests.kit.waits import wait_readable


class Server:
    """What threads release at.

    Attributes:
        error: With which it fails; None: it has released "T--00".
        asked: The targets, each as often as it was asked for.
        opened: How many threads have opened it.
    """

    def __init__(self) -> None:
        self.error: BackendUnreachable | None = None
        self.asked: list[ReleaseTarget] = []
        self.opened = 0
        self._services: list[Service] = []

    def release(self, service: Service, target: ReleaseTarget) -> tuple[str, ...]:
        if service not in self._services:
            self._services.append(service)
            self.opened += 1
        self.asked.append(target)
        if self.error is not None:
            raise self.error
        return ("T--00",)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def releases(
    desk: Desk, server: Server, log: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Releases]:
    register_made_up(monkeypatch)
    desk.pool(2)
    yield Releases(desk.service, Log(str(log), desk.time.clock))


@pytest.fixture
def far(desk: Desk, releases: Releases, server: Server, monkeypatch: pytest.MonkeyPatch) -> Handle:
    """Of a lease on a server."""
    monkeypatch.setattr(module, "release", server.release)
    service = desk.as_caller(desk.caller, "madeup://here")
    handle = new_handle(service, Request("T"), "T-far")
    with desk.state.transaction():
        desk.service.handles.create(handle, remote=True)
    return handle


def outcome(releases: Releases) -> None:
    """Wait for what a thread has to say, and take it."""
    assert releases.fd is not None
    wait_readable(releases.fd)
    releases.take_outcomes()


class TestHere:
    def test_it_is_done_at_once_and_logged(
        self, desk: Desk, releases: Releases, server: Server, log: Path
    ) -> None:
        handle = desk.acquire(Request("T", 2))
        assert releases.attempt(whole(handle)) is None
        assert desk.held() == {}
        assert log.read_text().endswith(f"released {handle.id}: T--00 T--01\n")
        assert (releases.fd, server.opened) == (None, 0)


class TestOnAServer:
    def test_what_failed_is_tried_again_after_ever_longer_pauses(
        self, desk: Desk, releases: Releases, server: Server, far: Handle, log: Path
    ) -> None:
        server.error = BackendUnreachable("away")
        for pause in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
            now = desk.time.clock.elapsed()
            assert releases.attempt(whole(far)) is None
            outcome(releases)
            desk.time.advance(pause - 0.1)
            asked = len(server.asked)
            assert releases.attempt(whole(far)) == now + pause
            assert len(server.asked) == asked
            desk.time.advance(0.1)
        assert "can't release T-far: away; next try in 10s" in log.read_text()
        server.error = None
        releases.attempt(whole(far))
        outcome(releases)
        server.error = BackendUnreachable("away")  # the first time again
        releases.attempt(whole(far))
        outcome(releases)
        assert releases.attempt(whole(far)) == desk.time.clock.elapsed() + 1.0

    def test_what_failed_at_a_server_is_tried_again_once_it_answers(
        self, desk: Desk, releases: Releases, server: Server, far: Handle
    ) -> None:
        others = {}
        for backend in ("madeup://here", "madeup://there"):
            service = desk.as_caller(desk.caller, backend)
            others[backend] = new_handle(service, Request("T"), f"T-{backend.rpartition('/')[2]}")
            with desk.state.transaction():
                desk.service.handles.create(others[backend], remote=True)
        server.error = BackendUnreachable("away")
        for each in others.values():
            releases.attempt(whole(each))
            outcome(releases)
        server.error = None
        releases.attempt(whole(far))
        outcome(releases)
        asked = len(server.asked)
        now = desk.time.clock.elapsed()
        assert releases.attempt(whole(others["madeup://there"])) == now + 1.0
        assert releases.attempt(whole(others["madeup://here"])) is None
        outcome(releases)
        assert server.asked[asked:] == [whole(others["madeup://here"])]

    def test_each_server_has_a_thread_of_its_own(
        self, desk: Desk, releases: Releases, server: Server, far: Handle
    ) -> None:
        service = desk.as_caller(desk.caller, "madeup://there")
        farther = new_handle(service, Request("T"), "T-farther")
        with desk.state.transaction():
            desk.service.handles.create(farther, remote=True)
        for each in (far, farther):
            releases.attempt(whole(each))
            outcome(releases)
        assert (server.opened, server.asked) == (2, [whole(far), whole(farther)])

    def test_what_is_gone_is_not_tried_again(
        self, releases: Releases, server: Server, far: Handle
    ) -> None:
        server.error = BackendUnreachable("away")
        releases.attempt(whole(far))
        outcome(releases)
        releases.keep_only({key_meant(whole(far))})
        assert releases.attempt(whole(far)) is not None
        assert len(server.asked) == 1
        releases.keep_only(set())
        assert releases.attempt(whole(far)) is None
        outcome(releases)
        assert len(server.asked) == 2
