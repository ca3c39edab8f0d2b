"""Durations and moments, read and written."""

from __future__ import annotations

import re
from random import Random

import pytest

from leasectl.errors import InvalidRequest
from leasectl.system.clock import rfc3339
from leasectl.text.durations import (
    LONGEST_SECONDS,
    format_duration,
    format_seconds,
    parse_duration,
    parse_moment,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("90s", 90),
        ("20m", 1200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1d", 86400),
        ("1d2h3m4s", 93784),
        (".5", 0.5),
        ("0.25s", 0.25),
        ("1.m", 60),
        ("007", 7),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


BAD = ["", " ", "m", "-1", "+1", "1 m", "1m ", " 1m", "1m\n", "90\n", "1x", "1mm", "m1", "1m30"]


BAD += ["1e3", "0x10", "nan", "inf", "1,5h", "1_000", "\u0661", "1\u0661m", "--", "1..5h", "."]


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_duration(text)
    assert "invalid duration" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["3661d", "9" * 400, "9" * 400 + "d", "9999999999999s"])
def test_a_duration_beyond_ten_years_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="ten years") as refused:
        parse_duration(text)
    assert len(str(refused.value)) < 200


def test_ten_years_are_allowed() -> None:
    assert parse_duration("3660d") == LONGEST_SECONDS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (47, "47s"),
        (60, "1m"),
        (61, "1m1s"),
        (1200, "20m"),
        (3599, "59m59s"),
        (5400, "1h30m"),
        (3601, "1h"),
        (187200, "2d4h"),
        (86400, "1d"),
    ],
)
def test_a_duration_is_shown_in_at_most_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [1, 59, 60, 61, 3600, 3660, 86400, 90000])
def test_what_is_shown_of_a_round_duration_reads_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.1, "0.1s"),
        (5 / 6, "0.83s"),
        (0.996, "1s"),
        (5 / 3, "1.7s"),
        (5.0, "5s"),
        (9.97, "10s"),
        (10.04, "10s"),
        (59.7, "1m"),
        (3600.0, "1h"),
    ],
)
def test_fractions_are_shown_of_what_is_short(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_texts_are_read_as_by_expressions_that_say_the_same() -> None:
    random, number = Random(7), r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    duration = re.compile(rf"{number}|(?:{number}[smhd])+")
    for _ in range(20_000):
        text = "".join(random.choices("0123.smhd-\u0663 xe+", k=random.randrange(8)))
        try:
            seconds = parse_duration(text)
        except InvalidRequest as refused:
            assert not duration.fullmatch(text) or "longer than ten years" in str(refused)
        else:
            assert duration.fullmatch(text)
            parts = re.findall(rf"({number})([smhd]?)", text)
            sizes = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
            assert seconds == sum(float(each) * sizes[unit] for each, unit in parts)


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
