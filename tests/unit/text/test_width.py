"""Text for a terminal: its width, what is safe to print, and its wording."""

from __future__ import annotations

import pytest

from leasectl.text.wording import (
    cells,
    counted,
    followed_by,
    listed,
    pad,
    printable,
    printable_url,
    shorten,
    widest,
    wrap,
)


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


def test_foreign_text_is_made_safe_for_one_line_of_a_terminal() -> None:
    assert printable("a\nb\x1b[31m\x00é") == "a\\nb\\x1b[31m\\x00é"
    assert printable("\u202e\u2028") == "\\u202e\\u2028"


def test_foreign_text_is_cut() -> None:
    assert printable("x" * 60) == "x" * 60
    assert printable("x" * 61) == "x" * 59 + "…"
    assert len(printable("\n" * 1000)) == 60


def test_a_url_is_shown_without_secrets_and_with_parameters_of_ours() -> None:
    assert printable_url("http://u:p@x:1/a?token=1&2#3") == "http://x:1/a?token=…&…#…"
    for whole in ("kubernetes://ns?context=a&kubeconfig=/b", "boskos+http://x?expire=30m"):
        assert printable_url(whole) == whole


@pytest.mark.parametrize(("number", "text"), [(0, "0 pools"), (1, "1 pool"), (2, "2 pools")])
def test_one_thing_is_no_plural(number: int, text: str) -> None:
    assert counted(number, "pool") == text


def test_of_many_things_the_first_are_named_and_the_others_counted() -> None:
    assert listed([]) == ""
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcde") == "a, b, c, d, e"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"


def test_what_follows_a_question_is_a_sentence() -> None:
    assert followed_by("a: no answer", "asking again") == "a: no answer; asking again"
    assert followed_by("a: is it there?", "asking again") == "a: is it there? Asking again"
    assert followed_by(ValueError("is it?"), "A isn't set") == "is it? A isn't set"
