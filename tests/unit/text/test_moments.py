"""Moments in the past: how long ago, or when."""

from __future__ import annotations

import pytest

from leasectl.errors import InvalidRequest
from leasectl.system.clock import rfc3339
from leasectl.text.durations import parse_moment

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", NOW),
        ("90", NOW - 90),
        ("2h", NOW - 7200),
        ("7d", NOW - 7 * 86400),
        ("2026-11-18", 1794960000.0),
        ("2026-11-18T11:06:40", NOW),
        ("2026-11-18 11:06:40", NOW),
        ("2026-11-18T11:06:40Z", NOW),
        ("2026-11-18T12:06:40+01:00", NOW),
        ("1970-01-01", 0.0),
    ],
)
def test_a_moment_is_so_long_ago_or_a_date(text: str, expected: float) -> None:
    assert parse_moment(text, NOW) == expected


def test_what_we_write_is_read_back() -> None:
    assert parse_moment(rfc3339(NOW + 0.25) or "", NOW) == NOW + 0.25


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "yesterday", "-1h", "2026-13-01", "2026-11-18T25:00", "2026-11-18Z1"),
        *("0000-00-00", "99999999d", "2026-11-18\x1b[31m", "\uff12\uff10\uff12\uff16-11-18"),
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^invalid time .*; write an age") as caught:
        parse_moment(text, NOW)
    assert str(caught.value).isprintable()
