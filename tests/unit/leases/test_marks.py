"""Marks: what is written is read back, and what anybody else may have noted is none."""

from __future__ import annotations

import json

import pytest

from leasectl.engines.cluster.records import LONGEST_SHOWN
from leasectl.engines.notes import LONGEST_NOTE
from leasectl.leases.marks import (
    Mark,
    MarkState,
    asked_in_words,
    encode_mark,
    new_mark,
    parse_mark,
    taken_off_in_words,
)

pytestmark = pytest.mark.once

MARK = Mark("0123456789abcdef", "ops@desk", "marked", 360.0, 1_700_000_000.5)
YEARS = 2 * 3660 * 86400.0


def written(**fields: object) -> str:
    return json.dumps({**MARK._asdict(), **fields})


@pytest.mark.parametrize("state", ["marked", "ready", "keep"])
def test_what_is_written_is_read_back(state: MarkState) -> None:
    mark = MARK._replace(state=state)
    assert parse_mark(encode_mark(mark)) == mark


def test_a_note_as_long_as_one_may_be_is_read() -> None:
    mark = new_mark("ops@desk", seconds=1, now=5)
    longest = encode_mark(mark).ljust(LONGEST_NOTE)
    assert parse_mark(longest) == mark
    assert parse_mark(longest + " ") is None


@pytest.mark.parametrize("seconds", [0, 0.5, YEARS])
def test_it_may_be_good_for_so_long(seconds: float) -> None:
    assert parse_mark(written(seconds=seconds)) == MARK._replace(seconds=seconds)


def test_of_one_that_is_put_is_told_who_asks() -> None:
    assert asked_in_words(MARK) == "asked by ops@desk to give it back"


def test_of_one_that_is_taken_off_is_told_why_and_what_was_answered_last() -> None:
    told = [taken_off_in_words(MARK), taken_off_in_words(MARK.answered("keep"), has_ended=True)]
    assert told == [
        "the reclaim request was withdrawn (no answer)",
        "the mark has expired (the last answer was keep)",
    ]
    assert taken_off_in_words(None) == ""


def test_the_longest_fits_into_a_note() -> None:
    mark = new_mark("\U0001f600" * 500, seconds=1 / 3, now=1 / 3)
    assert len(encode_mark(mark)) <= min(LONGEST_NOTE, LONGEST_SHOWN)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        "[" * 4000,
        '"marked"',
        "{}",
        written(id="../x"),
        written(id="\x1b[2J"),
        written(id=7),
        written(asked_by="\x1b]0;owned\x07"),
        written(asked_by="a\nb"),
        written(asked_by="x" * 101),
        written(asked_by=None),
        written(state="freed"),
        written(state=["ready"]),
        written(state=True),
        written(seconds=-1),
        written(seconds=-0.5),
        written(seconds=YEARS + 1),
        written(seconds=1e300),
        written(seconds=float("nan")),
        written(seconds=float("inf")),
        written(seconds=None),
        written(made_at=float("nan")),
        written(made_at="soon"),
        written(more=1),
        written()[:-1] + " " * LONGEST_NOTE + "}",
        json.dumps({key: value for key, value in MARK._asdict().items() if key != "id"}),
    ],
    ids=lambda note: note[:40],
)
def test_what_is_no_mark_is_not_read_as_one(note: str) -> None:
    assert parse_mark(note) is None
