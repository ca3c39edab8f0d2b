"""How messages write numbers of things, and lists of them."""

from __future__ import annotations

import pytest

from leasectl.text.wording import counted, followed_by, listed


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
