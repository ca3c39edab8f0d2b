"""Fields of JSON that somebody else has written."""

from __future__ import annotations

import pytest

from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_integer,
    read_json,
    read_name,
    read_number,
    read_optional,
    read_text,
    reason_of,
)


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


@pytest.mark.parametrize(
    "text",
    [
        *("Infinity", "-Infinity", "NaN", "1e999", "-1e999", "1e300", "9" * 20, "9" * 6000),
        *("", "{", "[" * 100_000, "x", "1 2", b"\xff"),
    ],
    ids=lambda text: str(text)[:10],
)
def test_what_is_no_json_or_has_no_usable_number_is_malformed(text: str | bytes) -> None:
    with pytest.raises(Malformed):
        read_json(text)


def test_json_of_a_server_is_read() -> None:
    assert read_json(b'{"a": [1, -2.5, null, "x"]}') == {"a": [1, -2.5, None, "x"]}
    assert read_json(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("value", [2**63, "9" * 400, 1e300, "x", None, [1]])
def test_what_is_no_integer_of_64_bits_is_malformed(value: object) -> None:
    with pytest.raises(MALFORMED):
        read_integer(value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("header"), '"header" is missing'),
        (KeyError("\x1b"), '"\\x1b" is missing'),
        (TypeError("'int' object is not iterable"), "a value has the wrong type or form"),
        (ValueError("invalid literal for int()"), "a value has the wrong type or form"),
        (Malformed("a name is not allowed"), "a name is not allowed"),
    ],
)
def test_a_reason_quotes_no_python(error: Exception, said: str) -> None:
    assert reason_of(error) == said
