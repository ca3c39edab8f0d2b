"""What is read into facts, and what is true of them where nothing else is said."""

from __future__ import annotations

import pytest

from leasectl.maintenance.facts import (
    Lease,
    LeaseWrite,
    Node,
    NodeWrite,
    Step,
    Us,
    Wanted,
    draining,
    parse_status,
    parse_wanted,
)
from tests.unit.maintenance.model import NODE_STATUSES

pytestmark = pytest.mark.once


def test_what_is_not_said_is_as_the_documents_have_it() -> None:
    assert Us("a") == ("a", 30, 10, 5.0)
    assert Lease("a", 60, 1.0) == ("a", 60, 1.0, None, 0, "", 0.0)
    assert Node("u") == ("u", "", False, "", None)
    assert NodeWrite("ended") == ("ended", None, None, False, False)
    assert Wanted(60) == (60, "")
    assert Step("why") == ("why", (), False, None, None)


@pytest.mark.parametrize(
    ("holder", "duration", "unchanged", "may_be"),
    [
        ("a", 60, 0.0, True),
        ("a", 60, 59.9, True),
        ("a", 60, 60.0, False),
        ("a", 0, 0.0, False),
        ("", 60, 0.0, False),
    ],
)
def test_a_lease_may_be_valid_until_it_was_seen_unchanged_for_as_long_as_it_lasts(
    holder: str, duration: int, unchanged: float, may_be: bool
) -> None:
    lease = Lease(holder, duration, None, unchanged_seconds=unchanged)
    assert lease.may_be_valid() is may_be


def test_a_lease_ends_after_its_duration_from_when_it_was_acquired() -> None:
    assert Lease("a", 60, 100.0, renewed_at=150.0).ends_at == 160.0
    assert Lease("a", 60, None, renewed_at=150.0).ends_at is None


def test_the_status_of_a_step_is_that_of_its_node() -> None:
    lease = LeaseWrite(Lease("a", 60, 1.0), True)
    assert Step("why", (lease, NodeWrite("active"))).status == "active"
    assert Step("why", (lease,)).status is None


def test_each_status_is_one_that_is_read_back() -> None:
    read = {parse_status(each) for each in NODE_STATUSES}
    assert read == {None, *(parse_status(each) for each in ("draining: x", *NODE_STATUSES))}
    assert len(read) == 12
    assert parse_status("draining: x") == parse_status("draining") == "draining"
    assert parse_status("drainingly") is None
    assert parse_status(draining("x")) == "draining"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, None),
        ("30m", Wanted(1800)),
        (" 90 ", Wanted(90)),
        ("1.5s", Wanted(2)),
        ("1", Wanted(1)),
        ("0.1s", Wanted(1)),
        ("3660d", Wanted(3660 * 86400)),
        ("0", Wanted(None)),
        ("", Wanted(None)),
        ("-5m", Wanted(None)),
        ("soon", Wanted(None)),
        ("11000d", Wanted(None)),
        ("9" * 5000, Wanted(None)),
        ("30m\n; rm -rf /", Wanted(None)),
        ("\u0663\u0660m", Wanted(None)),
    ],
)
def test_a_request_is_a_duration_of_more_than_nothing(
    text: str | None, wanted: Wanted | None
) -> None:
    assert parse_wanted(text) == wanted
    expected = None if wanted is None else wanted._replace(word="w")
    assert parse_wanted(text, "w") == expected


def test_the_longest_time_is_one_that_the_api_takes() -> None:
    wanted = parse_wanted("3660d")
    assert wanted is not None and wanted.seconds is not None
    assert wanted.seconds + Us("a").padding_seconds < 2**31


def test_a_reason_is_made_fit_to_show() -> None:
    assert draining("pod \x1b[2J") == "draining: pod \\x1b[2J"
    assert draining("x" * 200) == f"draining: {'x' * 200}"
    assert draining("x" * 201) == f"draining: {'x' * 199}\u2026"
