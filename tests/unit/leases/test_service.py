"""leasectl.leases.service: what all verbs work on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from leasectl.backends.contract import Opening
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.sides import MemoryMembers, MemoryNotes, MemoryValues
from leasectl.leases.service import Service
from tests.kit import made_up_backend
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server


def test_what_is_withheld_is_told_in_the_end(desk: Desk) -> None:
    told: list[str] = []
    service = Service(desk.state, backend_url="local:", caller=desk.caller, warn=told.append)
    service.warn("at once")
    with service.withholding() as withheld:
        service.warn("forgotten")
        service.warn("later")
        assert withheld.pop(0) == "forgotten"
        assert told == ["at once"]
    assert told == ["at once", "later"]


class TestItsBackend:
    """On a made-up server, of which it is seen what it is opened with."""

    @pytest.fixture
    def opened(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> list[tuple[str, str, Opening]]:
        opened: list[tuple[str, str, Opening]] = []

        def open_backend(url: str, opening: Opening) -> PoolBackend:
            opened.append((url, opening.settings, opening))
            return server

        monkeypatch.setattr(made_up_backend, "open_backend", open_backend)
        return opened

    @pytest.fixture
    def service(self, desk: Desk) -> Service:
        return Service(
            desk.state,
            backend_url=URL,
            caller=desk.caller,
            settings="{}",
            release_seconds=3.0,
            rest_seconds=7.0,
            clock=desk.time.clock,
        )

    def test_has_all_its_sides(self, server: Server, service: Service) -> None:
        assert isinstance(service.pools, MemoryPools)
        assert isinstance(service.members, MemoryMembers)
        assert isinstance(service.notes, MemoryNotes)
        assert isinstance(service.values, MemoryValues)
        assert service.events is server.events

    def test_is_waited_for_as_long_as_is_said(
        self, server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[float | None] = []

        @contextlib.contextmanager
        def limited(until: float | None) -> Iterator[None]:
            limits.append(until)
            yield

        monkeypatch.setattr(server, "limited", limited)
        with service.limited(5.0), service.limited(None):
            assert limits == [5.0, None]


def test_who_writes_down_what_happens_warns_as_the_service_does(desk: Desk) -> None:
    warn = list[str]().append
    service = Service(desk.state, backend_url="local:", caller=desk.caller, warn=warn)
    with contextlib.closing(service.for_another_thread().state) as state:
        assert service.state.events.warn is state.events.warn is warn
