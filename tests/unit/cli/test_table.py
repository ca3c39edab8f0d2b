"""Tables that line up and fit."""

from __future__ import annotations

import pytest

from leasectl.cli.table import Column, shorten, table

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


def test_columns_line_up_and_no_line_ends_in_spaces() -> None:
    assert table(COLUMNS[:3], [row[:3] for row in ROWS], None) == (
        "NAME                 N  WHO\n"
        "azure--install--00   7  job/build/host/azure--install-aBcDeF\n"
        "b                   12  short\n"
    )


@pytest.mark.parametrize("width", range(1, 100))
def test_no_line_is_wider_than_allowed(width: int) -> None:
    for indent in ("", "  "):
        lines = table(COLUMNS, ROWS, width, indent=indent).splitlines()
        assert len(lines) == 3
        assert max(map(len, lines)) <= width


def test_what_shrinks_first_spares_what_shrinks_later() -> None:
    lines = table(COLUMNS, ROWS, 50).splitlines()
    assert lines[1] == "azure--install--00   7  job/build/…ll-aBcDeF  k=v"


@pytest.mark.parametrize(
    ("width", "middle", "end"),
    [
        (10, "abcdefghij", "abcdefghij"),
        (9, "abcd…ghij", "abcdefgh…"),
        (4, "ab…j", "abc…"),
        (2, "a…", "a…"),
        (1, "…", "…"),
        (0, "", ""),
    ],
)
def test_a_text_is_cut_in_the_middle_or_at_the_end(width: int, middle: str, end: str) -> None:
    assert shorten("abcdefghij", width) == middle
    assert shorten("abcdefghij", width, cut="end") == end


def test_without_a_width_nothing_is_cut() -> None:
    assert shorten("a" * 1000, None) == "a" * 1000
