"""Tables that line up and fit."""

from __future__ import annotations

import re

import pytest

from leasectl.cli.rendering.table import GREEN, Column, table
from leasectl.text.wording import cells

COLUMNS = (
    Column("NAME", shrinks=2, at_least=6),
    Column("N", right=True),
    Column("WHO", shrinks=1, at_least=5),
    Column("NOTE", shrinks=1, at_least=4, cut="end"),
)
ROWS = (
    ("azure--install--00", "7", "job/build/host/azure--install-aBcDeF", "k=v"),
    ("b", "12", "short", ""),
)


def test_what_shrinks_first_spares_what_shrinks_later() -> None:
    lines = table(COLUMNS, ROWS, 50).text.splitlines()
    assert lines[1] == "azure--install--00   7  job/build/…ll-aBcDeF  k=v"


def test_columns_without_room_are_left_out_in_their_order() -> None:
    columns = (
        Column("NAME"),
        Column("FIRST", shrinks=1, at_least=6, goes=1),
        Column("STAYS"),
        Column("SECOND", goes=2),
    )
    rows = [("n" * 8, "f" * 20, "s" * 5, "x" * 9)]
    found = {width: table(columns, rows, width).left_out for width in range(60)}
    assert found[8 + 20 + 5 + 9 + 6] == found[8 + 6 + 5 + 9 + 6] == ()
    assert found[8 + 6 + 5 + 9 + 5] == found[8 + 5 + 9 + 4] == ("FIRST",)
    assert found[8 + 5 + 9 + 3] == found[8 + 5 + 2] == found[3] == ("FIRST", "SECOND")
    assert "NAME" in table(columns, rows, 15).text
    assert not table(columns, rows, 47).is_whole
    assert table(columns, rows, 48).is_whole
    assert table(columns, rows, None).is_whole


def test_a_colour_changes_nothing_but_the_colour() -> None:
    columns = (
        Column("A", right=True, colour=lambda text: GREEN if text == "x" else None),
        *COLUMNS,
    )
    rows = [("x", *ROWS[0]), ("yyy", *ROWS[1])]
    for width in (10, 40, 60, None):
        plain = table(columns, rows, width).text
        painted = table(columns, rows, width, colour=True).text
        assert re.sub(r"\x1b\[\d*m", "", painted) == plain
    assert painted.count("\x1b[32mx\x1b[0m") == 1
    assert "\x1b[1mNAME\x1b[0m" in painted


def test_a_character_of_two_cells_counts_twice() -> None:
    rows = [("\u8cc7\u6e90", "1", "e\u0301", "n"), ("abc", "2", "x", "n")]
    assert table(COLUMNS, rows, None).text.splitlines()[1:] == [
        "\u8cc7\u6e90  1  e\u0301    n",
        "abc   2  x    n",
    ]
    for width in range(1, 40):
        long = [("\u8cc7\u6e90" * 10, "1", "e\u0301" * 20, "\U0001f600" * 5)]
        assert all(cells(line) <= width for line in table(COLUMNS, long, width).text.splitlines())


def test_what_goes_first_makes_room_for_what_goes_later_or_comes_back() -> None:
    columns = [Column("A"), Column("PID", goes=1), Column("JOB", shrinks=1, at_least=8, goes=2)]
    for width, left in ((11, ["A", "JOB"]), (10, ["A", "PID"]), (4, ["A"])):
        shown = table(columns, [("a", "12345", "nightly-of-the-month")], width)
        assert shown.text.splitlines()[0].split() == left


@pytest.mark.parametrize("colour", [False, True])
def test_without_room_for_any_column_each_row_has_its_line(colour: bool) -> None:
    columns = (Column("FIRST", goes=1), Column("SECOND", goes=2))
    text, left_out, _ = table(columns, [("one", "two")], 1, colour=colour)
    assert (text.count("\n"), left_out) == (2, ("FIRST", "SECOND"))
