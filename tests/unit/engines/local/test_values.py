"""leasectl.engines.local.values: what is kept beside the pools of a state directory."""

from __future__ import annotations

import contextlib
import os

import pytest

from leasectl.engines.values import CONTENT, ValueChange
from leasectl.errors import NoRoom
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk


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
