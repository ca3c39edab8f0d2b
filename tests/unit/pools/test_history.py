"""leasectl.pools.history: what is over is put right before events are read."""

from __future__ import annotations

import pytest

from leasectl.errors import BackendUnreachable, LeaseError, NotSupported
from leasectl.leases.service import Service
from leasectl.pools.history import put_right
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk


def refuse(monkeypatch: pytest.MonkeyPatch, error: LeaseError) -> None:
    def pools(_: Service) -> None:
        raise error

    monkeypatch.setattr(Service, "pools", property(pools))


def test_a_server_that_is_away_is_not_waited_for_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, BackendUnreachable("no answer within 10s"))
    with pytest.raises(BackendUnreachable, match="no answer within 10s"):
        put_right(desk.service)


def test_events_are_told_also_where_nothing_can_be_put_right(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, NotSupported("no pools"))
    put_right(desk.service)
