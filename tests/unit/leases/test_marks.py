"""Marks: what is written is read back, and what anybody else may have noted is none."""

from __future__ import annotations

import json

import pytest

from leasectl.engines.etcd.key_values import LONGEST_SHOWN
from leasectl.engines.notes import LONGEST_NOTE
from leasectl.leases.marks import Mark, MarkState, encode_mark, new_mark, parse_mark

pytestmark = pytest.mark.once

MARK = Mark("0123456789abcdef", "ops@desk", "marked", 360.0, 1_700_000_000.5)


def written(**fields: object) -> str:
    return json.dumps({**MARK._asdict(), **fields})


@pytest.mark.parametrize("state", ["marked", "ready", "keep"])
def test_what_is_written_is_read_back(state: MarkState) -> None:
    mark = MARK._replace(state=state)
    assert parse_mark(encode_mark(mark)) == mark


def test_an_answer_changes_nothing_else() -> None:
    assert MARK.answered("ready") == MARK._replace(state="ready")
    assert MARK.answered("ready").answered("keep") == MARK._replace(state="keep")


def test_no_two_marks_are_the_same() -> None:
    first, second = (new_mark("ops@desk", seconds=9, now=5) for _ in "ab")
    assert first != second
    assert len(first.id) == len(MARK.id)
    assert first._replace(id=second.id) == second


def test_who_asks_can_be_shown_and_is_read_back() -> None:
    mark = new_mark("\x1b[2J" + "x" * 500, seconds=1, now=5)
    assert mark.asked_by.isprintable()
    assert parse_mark(encode_mark(mark)) == mark


def test_a_note_as_long_as_one_may_be_is_read() -> None:
    mark = new_mark("ops@desk", seconds=1, now=5)
    longest = encode_mark(mark).ljust(LONGEST_NOTE)
    assert parse_mark(longest) == mark
    assert parse_mark(longest + " ") is None


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
