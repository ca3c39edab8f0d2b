"""How messages write numbers of things, and lists of them."""

from __future__ import annotations

import pytest

from leasectl.text.wording import counted, listed


@pytest.mark.parametrize(("number", "text"), [(0, "0 pools"), (1, "1 pool"), (2, "2 pools")])
def test_one_thing_is_no_plural(number: int, text: str) -> None:
    assert counted(number, "pool") == text


def test_of_many_things_the_first_are_named_and_the_others_counted() -> None:
    assert listed([]) == ""
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcde") == "a, b, c, d, e"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"
