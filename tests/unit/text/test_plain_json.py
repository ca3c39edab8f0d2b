"""JSON is read and written as `json` does by default, and refused as it does."""

from __future__ import annotations

import json
import subprocess
import sys
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


NO_JSON = (
    *("{bad", '{"a"', '{"a" 1}', '{"a": ', '{"a": 1', '{"a": 1, ', '{"a": 1 "b": 2}', '{"a": 1, b'),
    *('"a', '"\\', '"\\x"', '"\\u12"', '"\n"', "[1", "[1,", "[1 2]", "[", "tru", "-", "x", "{}}"),
)


def test_what_is_no_json_is_refused_as_well_where_nobody_has_loaded_json() -> None:
    """As in a command: tests have loaded it."""
    script = """
import sys
from leasectl.text import plain_json
for text in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
        del sys.modules[name]
    try:
        print("read", text, plain_json.loads(text))
    except ValueError as error:
        print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script, *NO_JSON], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("JSONDecodeError\n" * len(NO_JSON), "")
