"""leasectl.leases.service: what all verbs work on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from leasectl.backends.contract import Opening
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.local.members import LocalMembers
from leasectl.engines.local.notes import LocalNotes
from leasectl.engines.local.pools import LocalPools
from leasectl.engines.local.values import LocalValues
from leasectl.leases.release import release
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Request, whole
from leasectl.state.event_log import StateEventLog
from tests.kit import made_up_backend
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server


def test_events_are_those_of_its_backend(desk: Desk) -> None:
    desk.pool(1)
    release(desk.service, whole(desk.acquire()))
    told = [each.kind for each in desk.service.events.read()]
    assert told[-2:] == ["granted", "released"]


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
        assert isinstance(service.pools, LocalPools)
        assert isinstance(service.members, LocalMembers)
        assert isinstance(service.notes, LocalNotes)
        assert isinstance(service.values, LocalValues)
        assert isinstance(service.events, StateEventLog)

    def test_is_opened_once_with_all_that_it_is_to_know(
        self, desk: Desk, service: Service, opened: list[tuple[str, str, Opening]]
    ) -> None:
        assert service.pools.pools("T")
        service.backend_of(new_handle(service, Request("T"), "T-1"))
        ((url, settings, opening),) = opened
        assert (url, settings) == (URL, "{}")
        assert opening == Opening(
            desk.state,
            "{}",
            3.0,
            7.0,
            service.losses.tell,
            service.warn,
            desk.time.clock,
            service.caller.identity,
        )

    def test_of_a_handle_is_the_one_that_the_handle_is_from(
        self, service: Service, opened: list[tuple[str, str, Opening]]
    ) -> None:
        handle = new_handle(service, Request("T"), "T-1")
        service.backend_of(handle)
        service.backend_of(handle._replace(settings="others"))
        service.backend_of(handle._replace(backend="madeup://there"))
        assert [each[:2] for each in opened] == [
            (URL, "{}"),
            (URL, "others"),
            ("madeup://there", "{}"),
        ]

    def test_for_another_thread_is_opened_in_the_same_way_on_a_directory_of_its_own(
        self, desk: Desk, service: Service, opened: list[tuple[str, str, Opening]]
    ) -> None:
        desk.state.events.kept_seconds, desk.state.events.kept_number = 60.0, 5
        assert service.pools.pools("T")
        other = service.for_another_thread()
        with contextlib.closing(other.state) as state:
            assert other.pools.pools("T")
            assert state is not desk.state
            assert state.directory == desk.state.directory
            assert (state.events.kept_seconds, state.events.kept_number) == (60.0, 5)
            (first, second) = (opening for _, _, opening in opened)
            assert second == first._replace(state=state, lost=other.losses.tell, warn=other.warn)

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


def test_steps_inside_happen_at_once(desk: Desk) -> None:
    desk.pool(1)
    with pytest.raises(ZeroDivisionError), desk.service.atomic():
        desk.service.pools.delete_pool("T", force=False)
        raise ZeroDivisionError
    assert [pool.type for pool in desk.service.pools.pools()] == ["T"]


def test_who_writes_down_what_happens_warns_as_the_service_does(desk: Desk) -> None:
    warn = list[str]().append
    service = Service(desk.state, backend_url="local:", caller=desk.caller, warn=warn)
    with contextlib.closing(service.for_another_thread().state) as state:
        assert service.state.events.warn is state.events.warn is warn
