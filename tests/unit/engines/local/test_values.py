"""leasectl.engines.local.values: what is kept beside the pools of a state directory."""

from __future__ import annotations

import contextlib
import os

import pytest

from leasectl.engines.values import CONTENT, Guard, ValueChange
from leasectl.errors import NoRoom
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.state.event import ALL_EVENTS, Event
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


@pytest.mark.parametrize(("left", "has_room"), [(4096 + 2, True), (4096 + 1, False)])
def test_what_may_be_large_leaves_room_for_leases(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, left: int, has_room: bool
) -> None:
    values = desk.service.values
    values.change([ValueChange("demo/state/a", b"before")])
    found = os.statvfs_result([512, 1024, 1 << 20, 1 << 20, left, 0, 0, 0, 0, 255])
    monkeypatch.setattr(os, "fstatvfs", lambda _: found)
    large = f"demo/{CONTENT}/a/1"
    changes = [ValueChange("demo/state/a", b"after"), ValueChange(large, b"x" * 1024)]
    refused = pytest.raises(
        NoRoom, match=r"no room for 1024 bytes in .*, as 4 MiB .* LEASECTL_STATE_DIR"
    )
    with contextlib.nullcontext() if has_room else refused:
        values.change(changes)
    kept = values.get("demo/state/a")
    assert kept is not None
    assert kept.content == (b"after" if has_room else b"before")
    assert (values.get(large) is not None) is has_room


@pytest.mark.parametrize(("left", "has_room"), [(4096, True), (4095, False)])
def test_whether_there_is_room_for_anything_is_told_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, left: int, has_room: bool
) -> None:
    found = os.statvfs_result([512, 1024, 1 << 20, 1 << 20, left, 0, 0, 0, 0, 255])
    monkeypatch.setattr(os, "fstatvfs", lambda _: found)
    refused = pytest.raises(NoRoom, match="no room for anything in")
    with contextlib.nullcontext() if has_room else refused:
        desk.service.values.check_room()
    assert desk.service.values.change([ValueChange("demo/state/a", b"small")])


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


def test_what_is_not_there_yet_has_version_0(desk: Desk) -> None:
    values, key = desk.service.values, "demo/state/a"
    assert not values.change([ValueChange(key, b"1", 1)])
    assert values.change([ValueChange(key, b"1", 0)])
    assert not values.change([ValueChange(key, b"2", 0)])
    found = values.get(key)
    assert found is not None
    assert (found.content, found.written_at) == (b"1", desk.time.clock.wall())


def test_of_several_all_are_changed_or_none(desk: Desk) -> None:
    values = desk.service.values
    new, old = ValueChange("demo/state/a", b"1", 0), ValueChange("demo/said/a", b"1", 7)
    assert not values.change([new, old])
    assert values.read("demo/") == ()
    assert values.change([new, old._replace(version=0)])
    assert len({each.version for each in values.read("demo/")}) == 2


def test_it_is_kept_for_as_long_as_was_said(desk: Desk) -> None:
    values = desk.service.values
    assert values.change([ValueChange("demo/state/a", b"1", None, keep_seconds=60.0)])
    assert values.change([ValueChange("demo/state/b", b"1", None)])
    desk.time.advance(59.0)
    assert [each.key for each in values.read("demo/")] == ["demo/state/a", "demo/state/b"]
    desk.time.advance(1.0)
    assert values.get("demo/state/a") is None
    assert [each.key for each in values.read("demo/")] == ["demo/state/b"]
    # For who changes it, too, it isn't there.
    assert values.change([ValueChange("demo/state/a", b"2", 0)])
    assert len(values.read("demo/")) == 2


@pytest.mark.parametrize("frees", [False, True])
def test_by_a_claim_it_is_changed_as_long_as_that_is_good(desk: Desk, frees: bool) -> None:
    desk.pool(2)
    handle = desk.acquire(Request("T", 2))
    values, key = desk.service.values, "demo/state/a"
    guard = Guard(handle.id, "T--00", handle.leases[0].fence, frees)
    for other in (
        guard._replace(fence=guard.fence + 7),
        guard._replace(name="T--01"),
        guard._replace(claim_key="other"),
    ):
        assert not values.change([ValueChange(key, b"0", None)], guard=other)
    assert values.get(key) is None
    assert len(desk.held()) == 2
    assert values.change([ValueChange(key, b"1", None)], guard=guard)
    assert ("T--00" in desk.held()) is not frees
    assert "T--01" in desk.held()
    release(desk.service, whole(handle))
    assert not values.change([ValueChange(key, b"2", None)], guard=guard)
    found = values.get(key)
    assert found is not None
    assert found.content == b"1"


def test_with_it_is_told_what_is_said_of_it(desk: Desk) -> None:
    said = Event(0, desk.time.clock.wall(), "noted", "T", ("T--00",), reason="asked for")
    values = desk.service.values
    assert not values.change([ValueChange("demo/state/a", b"1", 7)], event=said)
    assert list(desk.service.events.read(ALL_EVENTS)) == []
    assert values.change([ValueChange("demo/state/a", b"1", None)], event=said)
    (told,) = desk.service.events.read(ALL_EVENTS)
    assert told._replace(number=0) == said
