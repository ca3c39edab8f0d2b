"""Properties and conditions on them, as they are written."""

from __future__ import annotations

import pytest

from leasectl.errors import InvalidRequest
from leasectl.text.properties import (
    LONGEST_VALUE,
    MOST,
    check_key,
    check_value,
    parse_conditions,
    written,
)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("region=us-east-1", ("region", "us-east-1", True)),
        ("region!=us-east-1", ("region", "us-east-1", False)),
        ("size=", ("size", "", True)),
        ("size!=", ("size", "", False)),
        ("a=b=c", ("a", "b=c", True)),
        ("a=!=", ("a", "!=", True)),
        ("a!=!=", ("a", "!=", False)),
        ("A.b_c-=with blanks, and ünïcode", ("A.b_c-", "with blanks, and ünïcode", True)),
    ],
)
def test_a_condition_is_read_in_one_way_only(text: str, condition: tuple[str, str, bool]) -> None:
    assert parse_conditions([text]) == (condition,)
    assert written((condition,)) == (text,)


def test_conditions_keep_their_order_and_are_there_once() -> None:
    assert written(parse_conditions(["b=1", "a!=2", "b=1", "a!=3"])) == ("b=1", "a!=2", "a!=3")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["region"], '--where "region": write it as KEY=VALUE or KEY!=VALUE'),
        ([""], "write it as KEY=VALUE"),
        (["=eu"], 'property "" is not allowed'),
        (["!=eu"], 'property "" is not allowed'),
        (["-a=eu"], 'property "-a" is not allowed'),
        (["a b=eu"], "is not allowed"),
        (["a!!=eu"], 'property "a!" is not allowed'),
        (["ä=eu"], "is not allowed"),
        (["a=b\nc"], "one line of printable text"),
        (["a=\x1b[31m"], "one line of printable text"),
        (["a=\udcff"], "one line of printable text"),
        (["a=1", "a=2"], '"a" can\'t be both "1" and "2"'),
        ([f"k{n}=1" for n in range(MOST + 1)], f"33 properties; at most {MOST}"),
    ],
)
def test_what_is_no_condition_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_conditions(texts)
    assert said in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_value_is_as_long_as_its_bytes() -> None:
    assert check_value("k", "x" * LONGEST_VALUE)
    assert check_value("k", "ü" * (LONGEST_VALUE // 2))
    for text in ("x" * (LONGEST_VALUE + 1), "ü" * (LONGEST_VALUE // 2 + 1)):
        with pytest.raises(InvalidRequest, match="at most 1024 are allowed"):
            check_value("k", text)


def test_a_key_is_as_long_as_a_name() -> None:
    assert check_key("k" * 253)
    with pytest.raises(InvalidRequest, match="at most 253 characters"):
        check_key("k" * 254)
