"""JSON is read and written as `json` does by default, and refused as it does."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from leasectl.text import plain_json


def outcome(do: Callable[..., object], *args: Any, **options: Any) -> tuple[str, str]:
    """What comes of it: a value, or an error and its text."""
    try:
        value = do(*args, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", repr(value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{}",
            ' [1, 2.5, -3e4, true, false, null, "a\\u00e9"] \n',
            '"x"',
            "1",
            '{"a": {"b": [{}]}}',
        ),
        *("NaN", "[Infinity, -Infinity]", '{"a": 1, "a": 2}', "123456789012345678901234567890"),
        *(
            "",
            "  ",
            "[1",
            '{"a": 1}x',
            "nan",
            "\ufeff{}",
            "1 2",
            "{a: 1}",
            '"\n"',
            "[1,]",
            "[" * 99,
        ),
    ],
)
def test_a_text_is_read_as_json_reads_it(text: str) -> None:
    assert outcome(plain_json.loads, text) == outcome(json.loads, text)
    hooks: Any = {
        "object_pairs_hook": tuple,
        "parse_int": str,
        "parse_float": str,
        "parse_constant": str,
    }
    assert outcome(plain_json.Reader(**hooks), text) == outcome(json.loads, text, **hooks)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize(
    "value",
    [
        *({}, [], '\u00e9"\n', 1, 1.5, None, True, (1, 2), {1: 2}),
        *({"a": [1, {"b": None}], "c": float("inf")}, {"x": {1}}, {(1, 2): 3}),
    ],
)
def test_a_value_is_written_as_json_writes_it(value: Any, separators: tuple[str, str]) -> None:
    ours = outcome(plain_json.dumps, value, separators=separators)
    assert ours == outcome(json.dumps, value, separators=separators)


def test_what_holds_itself_is_not_written() -> None:
    value: list[Any] = []
    value.append(value)
    assert outcome(plain_json.dumps, value) == outcome(json.dumps, value)
