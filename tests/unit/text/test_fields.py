"""Fields of JSON that somebody else has written."""

from __future__ import annotations

import pytest

from leasectl.text.fields import MALFORMED, read_name, read_number, read_optional, read_text


def test_what_is_as_it_should_be_is_read() -> None:
    assert read_number("1.5") == 1.5
    assert read_text("a\x1b") == "a\x1b"
    assert read_name("T--00") == "T--00"
    assert read_optional(read_name, None) is None
    assert read_optional(read_number, 2) == 2.0


@pytest.mark.parametrize("value", ["nan", "-inf", "x", None, [], 10**400])
def test_what_is_no_number_is_malformed(value: object) -> None:
    with pytest.raises(MALFORMED):
        read_number(value)


@pytest.mark.parametrize("value", [None, 1, ["T"], "", "../x", "a b", "\ud800"])
def test_what_is_no_name_is_malformed(value: object) -> None:
    with pytest.raises(MALFORMED):
        read_name(value)
