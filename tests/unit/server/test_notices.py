"""What the server's operator is told, and how often."""

from __future__ import annotations

import pytest

from leasectl.engines.contract import TicketExpired
from leasectl.errors import (
    BackendUnreachable,
    Cancelled,
    InvalidRequest,
    LeaseError,
    NoLease,
    NotAllowed,
    NotFound,
)
from leasectl.server.metrics import Notices
from tests.kit.support import ManualClock


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def notices(lines: list[str], manual_clock: ManualClock) -> Notices:
    return Notices(lines.append, clock=manual_clock.clock)


def test_what_goes_on_failing_is_told_once_a_minute(
    notices: Notices, lines: list[str], manual_clock: ManualClock
) -> None:
    for seconds in range(0, 150, 10):
        notices.failed("GET /healthz", BackendUnreachable(f"no answer {seconds}"))
        notices.failed("POST /lease/acquire", TicketExpired("no answer"))
        manual_clock.advance(10)
    assert lines == [f"GET /healthz failed: no answer {seconds}" for seconds in (0, 60, 120)]


def test_another_kind_is_told_at_once(notices: Notices, lines: list[str]) -> None:
    notices.failed("GET /healthz", BackendUnreachable("no answer"))
    notices.failed("GET /healthz", NotAllowed("no such user"))
    notices.tell("T-abc", "T-abc stays unconfirmed")
    notices.tell("T-abd", "T-abd stays unconfirmed")
    assert len(lines) == 4


@pytest.mark.parametrize("kind", [NotFound, InvalidRequest, NoLease, Cancelled, LeaseError])
def test_a_clients_own_failures_are_not_the_operators(
    notices: Notices, lines: list[str], kind: type[LeaseError]
) -> None:
    notices.failed("POST /lease/acquire", kind("not had"))
    assert lines == []
