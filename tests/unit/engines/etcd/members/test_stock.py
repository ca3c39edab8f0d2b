"""What is so of the resources of a pool in etcd, as it is written and read."""

from __future__ import annotations

import pytest

from leasectl.engines.etcd.gateway.requests import Found, KeyValue, decode
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import (
    encode_member,
    encode_properties,
    parse_member,
    parse_properties,
)
from leasectl.engines.etcd.members.stock import (
    encode_closed,
    parse_closed,
    parse_stock,
    stock_writes,
)
from leasectl.engines.membership import Member
from leasectl.errors import CorruptState

KEYS = Keys("/p", "here")
NAME = Member("n", "T")
EU = (("region", "eu"), ("size", "big"))


def kv(key: str, value: str) -> KeyValue:
    return KeyValue(key, value, 1, 1)


def written(before: Member, after: Member) -> dict[str, str | None]:
    """The keys that are put, and those that are deleted."""
    found: dict[str, str | None] = {}
    for each in stock_writes(KEYS, before, after):
        ((kind, request),) = each.items()
        key = decode(request["key"])
        assert key not in found, "etcd takes no key twice"
        found[key] = decode(request["value"]) if kind == "request_put" else None
    return found


def test_why_it_takes_no_holder_is_read_as_it_was_written() -> None:
    for member in (
        Member("n", cordoned=True),
        Member("n", moves_to="U"),
        Member("n", leaves=True, cordoned=True),
    ):
        assert parse_closed(kv(KEYS.closed("T", "n"), encode_closed(member))) == member


@pytest.mark.parametrize("value", ["", "[]", "{", '{"a/b": "c"}', '{"a": 1}', "[1, 2]", "1"])
def test_what_nobody_of_ours_has_written_is_refused(value: str) -> None:
    with pytest.raises(CorruptState, match="closed/T/n"):
        parse_closed(kv(KEYS.closed("T", "n"), value))


@pytest.mark.parametrize(("key", "value"), [("\x1b[2J", "a"), ("a", "\x1b[2J"), ("a\nb", "a")])
def test_what_a_terminal_would_heed_is_escaped(key: str, value: str) -> None:
    hostile = Member("n", "T", properties=((key, value),))
    read = (
        *parse_properties(kv(KEYS.property("T", "n"), encode_properties(hostile.properties))),
        *parse_member(kv(KEYS.member("n"), encode_member(hostile, "")), "n", "T").properties,
    )
    assert len(read) == 2
    assert all(text.isprintable() for pair in read for text in pair)


def test_all_in_a_pool_is_put_together() -> None:
    answers = [
        [kv(KEYS.resource("T", name), "") for name in ("a", "b", "c")],
        [kv(KEYS.closed("T", "b"), encode_closed(Member("b", cordoned=True)))],
        [kv(KEYS.property("T", name), encode_properties(EU)) for name in ("b", "c")],
    ]
    stock = parse_stock("T", [Found(tuple(each), len(each)) for each in answers])
    assert stock.members == {
        "a": Member("a", "T"),
        "b": Member("b", "T", cordoned=True, properties=EU),
        "c": Member("c", "T", properties=EU),
    }


class TestWritten:
    def test_is_nothing_where_nothing_changes(self) -> None:
        member = NAME._replace(properties=EU)
        assert written(NAME, NAME) == written(member, member) == {}

    def test_are_its_properties(self) -> None:
        after = NAME._replace(properties=EU)
        assert written(NAME, after) == {KEYS.property("T", "n"): encode_properties(EU)}
        assert written(after, NAME) == {KEYS.property("T", "n"): None}

    def test_is_that_it_takes_no_holder(self) -> None:
        after = NAME._replace(cordoned=True)
        assert written(NAME, after) == {KEYS.closed("T", "n"): encode_closed(after)}
        assert written(after, NAME) == {KEYS.closed("T", "n"): None}

    def test_goes_with_it_to_another_pool(self) -> None:
        before = NAME._replace(properties=EU, moves_to="U")
        after = Member("n", "U", cordoned=True, properties=EU)
        assert written(before, after) == {
            KEYS.property("T", "n"): None,
            KEYS.closed("T", "n"): None,
            KEYS.property("U", "n"): encode_properties(EU),
            KEYS.closed("U", "n"): encode_closed(after),
        }

    def test_takes_away_what_was_left_where_it_comes(self) -> None:
        assert written(Member("n"), NAME) == {
            KEYS.property("T", "n"): None,
            KEYS.closed("T", "n"): None,
        }

    def test_goes_as_it_leaves(self) -> None:
        before = NAME._replace(properties=EU, leaves=True)
        assert written(before, Member("n")) == {
            KEYS.property("T", "n"): None,
            KEYS.closed("T", "n"): None,
        }
