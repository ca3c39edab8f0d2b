"""leasectl.leases.service: what all verbs work on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from leasectl.backends.kinds import Context
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import LostListener
from leasectl.engines.local.members import LocalMembers
from leasectl.engines.local.notes import LocalNotes
from leasectl.engines.local.pools import LocalPools
from leasectl.engines.local.values import LocalValues
from leasectl.http.settings import Settings
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.state.directory import State
from leasectl.state.event_log import StateEventLog
from tests.kit.desk import Desk
from tests.kit.made_up_backend import MadeUpBackend
from tests.kit.made_up_server import URL, Server


def test_what_is_withheld_is_told_in_the_end(desk: Desk) -> None:
    told: list[str] = []
    service = Service(desk.state, Context("local:", caller=desk.caller, warn=told.append))
    service.warn("at once")
    with service.withholding() as withheld:
        service.warn("forgotten")
        service.warn("later")
        assert withheld.pop(0) == "forgotten"
        assert told == ["at once"]
    assert told == ["at once", "later"]


class _Opened(NamedTuple):
    context: Context
    state: State
    lost: LostListener


class TestItsBackend:
    """On a made-up server, of which it is seen what it is opened with."""

    SETTINGS = Settings(token_file="/t")

    @pytest.fixture
    def opened(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> list[_Opened]:
        opened: list[_Opened] = []

        def open_one(context: Context, state: State, lost: LostListener) -> PoolBackend:
            opened.append(_Opened(context, state, lost))
            return server

        monkeypatch.setattr(MadeUpBackend, "open", open_one)
        return opened

    @pytest.fixture
    def service(self, desk: Desk) -> Service:
        caller, clock = desk.caller, desk.time.clock
        return Service(desk.state, Context(URL, self.SETTINGS, caller, 3.0, 7.0, clock=clock))

    def test_has_all_its_sides(self, server: Server, service: Service) -> None:
        assert isinstance(service.pools, LocalPools)
        assert isinstance(service.members, LocalMembers)
        assert isinstance(service.notes, LocalNotes)
        assert isinstance(service.values, LocalValues)
        assert isinstance(service.events, StateEventLog)

    def test_is_opened_once_with_its_context(
        self, desk: Desk, service: Service, opened: list[_Opened]
    ) -> None:
        assert service.pools.pools("T")
        service.backend_of(new_handle(service, Request("T"), "T-1"))
        context = service.context._replace(warn=service.warn)
        assert opened == [_Opened(context, desk.state, service.losses.tell)]

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
    service = Service(desk.state, Context("local:", caller=desk.caller, warn=warn))
    with contextlib.closing(service.for_another_thread().state) as state:
        assert service.state.events.warn is state.events.warn is warn
