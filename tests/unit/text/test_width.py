"""How much room texts take, and what is left of them in less."""

from __future__ import annotations

import pytest

from leasectl.text.wording import cells, pad, shorten, widest, wrap


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


@pytest.mark.parametrize(
    ("text", "taken"), [("", 0), ("abc", 3), ("\u8cc7\u6e90", 4), ("e\u0301", 1), ("\U0001f600", 2)]
)
def test_cells_are_those_of_a_terminal(text: str, taken: int) -> None:
    assert cells(text) == taken
    assert widest(["a", text, ""]) == max(taken, 1)


@pytest.mark.parametrize("text", ["\u8cc7\u6e90" * 5, "a\u8cc7" * 5, "e\u0301" * 10, "\u0301" * 9])
def test_what_is_cut_takes_no_more_than_it_may(text: str) -> None:
    for width in range(12):
        assert cells(shorten(text, width)) <= width
        assert cells(shorten(text, width, cut="end")) <= width


def test_padding_is_by_cells_at_either_side() -> None:
    assert pad("\u8cc7", 4) == "\u8cc7  "
    assert pad("\u8cc7", 4, right=True) == "  \u8cc7"


def test_wrapped_text_loses_nothing_and_fits() -> None:
    text = "granted  T  a-long-word-that-has-no-space to 漢字漢字 and more"
    for width in range(2, 70):
        lines = wrap(text, width, indent="    ")
        assert max(map(cells, lines)) <= width
        assert "".join("".join(lines).split()) == "".join(text.split())
    assert wrap(text, None, indent=" ") == [text]
    assert "".join(wrap("漢字", 1, indent=" ")) == "漢字"
    assert wrap("one two three", 9, indent="  ") == ["one two", "  three"]
