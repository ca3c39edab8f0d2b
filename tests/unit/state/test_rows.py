"""leasectl.state.rows: what stands in rows, and the facts that they stand for."""

from __future__ import annotations

import sqlite3

import pytest

from leasectl.state import rows
from leasectl.state.directory import State
from leasectl.system.process import this_process


@pytest.mark.parametrize(
    ("ttl", "scope", "is_explicit", "is_followed", "so"),
    [
        (60.0, "step", False, False, True),
        (60.0, "step", False, True, True),
        (60.0, "step", True, False, False),
        (60.0, "step", True, True, True),
        (60.0, "test", False, False, False),
        (60.0, "test", True, True, False),
        (None, "step", False, False, False),
        (None, "step", True, True, False),
    ],
)
def test_a_ttl_is_renewed_unless_its_holder_is_to_do_that_or_nobody(
    ttl: float | None, scope: str, is_explicit: bool, is_followed: bool, so: bool
) -> None:
    assert rows.is_renewed(ttl, scope, is_explicit=is_explicit, is_followed=is_followed) is so


def test_what_is_missing_is_written_as_nothing_and_read_so() -> None:
    assert (rows.encode_process(None), rows.parse_optional_process(None)) == (None, None)
    assert rows.encode_range(None) is None
    assert (rows.encode_labels(()), rows.parse_labels("")) == ("", ())
    assert (rows.encode_where(()), rows.parse_where("")) == ("", ())


@pytest.mark.parametrize("text", ["5", "null", "[5]", '[["zone", "b"]]', "zone"])
def test_conditions_that_are_none_are_damage(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rows.parse_where(text)


def test_what_is_there_reads_as_it_was_written() -> None:
    us = this_process()
    assert rows.parse_optional_process(rows.encode_process(us)) == us
    assert rows.encode_range((60.5, 120.0)) == "60.5,120.0"
    where = (("zone", 'b"', True), ("arch", "", False))
    assert rows.parse_where(rows.encode_where(where)) == where
    assert rows.parse_labels("\na=b\n\n") == (("a", "b"),)


def test_a_row_is_in_place_of_another_only_if_that_is_meant(state: State) -> None:
    rows.insert(state.db, "note", {"name": "a", "fence": 1, "text": "first"})
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        rows.insert(state.db, "note", {"name": "a", "fence": 2, "text": "second"})
    assert [tuple(row) for row in state.query("SELECT * FROM note")] == [("a", 1, "first")]
    # By their names, in whatever order.
    rows.insert(state.db, "note", {"text": "third", "name": "a", "fence": 3}, replace=True)
    assert [tuple(row) for row in state.query("SELECT * FROM note")] == [("a", 3, "third")]
