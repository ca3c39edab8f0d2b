"""leasectl.engines.local.values: what is kept beside the pools of a state directory."""

from __future__ import annotations

from leasectl.engines.values import CONTENT, ValueChange
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk


def test_values_are_read_by_the_beginning_of_their_keys_in_order(desk: Desk) -> None:
    values = desk.service.values
    keys = ("demo/state/b", "demo/state/a/2", "demo/state/a/1", "demo/said/a", "demo/state/a")
    for key in keys:
        assert values.change([ValueChange(key, key.encode(), None)])
    assert [(each.key, each.content) for each in values.read("demo/state/a/")] == [
        ("demo/state/a/1", b"demo/state/a/1"),
        ("demo/state/a/2", b"demo/state/a/2"),
    ]
    assert [each.key for each in values.read("demo/")] == sorted(keys)
    assert values.read("other/") == ()
    (read,) = values.read("demo/state/b")
    assert values.get("demo/state/b") == read
    assert values.get("demo/state") is None


def test_what_may_be_large_is_read_by_its_key_alone(desk: Desk) -> None:
    values = desk.service.values
    large = f"demo/{CONTENT}/a/1"
    assert values.change([ValueChange(large, b"x", None), ValueChange("demo/state/a", b"", None)])
    assert [each.key for each in values.read("demo/")] == ["demo/state/a"]
    found = values.get(large)
    assert found is not None
    assert found.content == b"x"


def test_a_value_is_changed_by_who_has_seen_its_version_and_gone_for_who_removes_it(
    desk: Desk,
) -> None:
    values, key = desk.service.values, "demo/state/a"
    assert values.change([ValueChange(key, b"1", None)])
    (first,) = values.read(key)
    assert values.change([ValueChange(key, b"2", first.version)])
    assert not values.change([ValueChange(key, b"3", first.version)])
    (second,) = values.read(key)
    assert second.content == b"2"
    assert values.change([ValueChange(key, None, second.version)])
    assert values.read(key) == ()
