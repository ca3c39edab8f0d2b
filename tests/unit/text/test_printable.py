"""Foreign text, made safe to show."""

from __future__ import annotations

from leasectl.text.wording import printable, printable_url


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
