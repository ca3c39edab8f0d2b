"""Foreign text, made safe to show."""

from __future__ import annotations

from leasectl.text.printable import printable


def test_foreign_text_is_made_safe_for_one_line_of_a_terminal() -> None:
    assert printable("a\nb\x1b[31m\x00é") == "a\\nb\\x1b[31m\\x00é"
    assert printable("\u202e\u2028") == "\\u202e\\u2028"


def test_foreign_text_is_cut() -> None:
    assert printable("x" * 60) == "x" * 60
    assert printable("x" * 61) == "x" * 59 + "…"
    assert len(printable("\n" * 1000)) == 60
