"""leasectl.state.read_only: what completion reads of a state directory that it doesn't open."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Callable

import pytest

from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.state import read_only
from leasectl.state.rows import insert
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk

READERS: dict[str, Callable[[str], object]] = {
    "pool types": read_only.pool_types,
    "resource names": read_only.resource_names,
    "held names": read_only.held_names,
    "handle ids": lambda directory: read_only.handle_ids(directory, released_too=True),
    "handle types": lambda directory: read_only.handle_types(directory, "local:"),
    "properties": read_only.properties,
    "values": lambda directory: read_only.values(directory, ""),
}


@pytest.fixture
def used(desk: Desk) -> str:
    """One with two pools, of which one has everything held, and a handle that is released."""
    desk.pool(2, "U")
    desk.pool(1, "T")
    desk.acquire(Request("U", count=2))
    release(desk.service, whole(desk.acquire()))
    return desk.state.directory


def test_pools_and_what_is_in_them(used: str) -> None:
    assert read_only.pool_types(used) == ["T", "U"]
    assert read_only.resource_names(used) == [("T--00", "T"), ("U--00", "U"), ("U--01", "U")]
    assert read_only.held_names(used) == ["U--00", "U--01"]


def test_a_folder_is_found_from_here_whatever_it_is_called(
    desk: Desk, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(used).with_name("100% odd? #1")
    shutil.copytree(used, odd, ignore=shutil.ignore_patterns("waiters"))
    monkeypatch.chdir(odd.parent)
    assert read_only.pool_types(odd.name) == read_only.pool_types(str(odd)) == ["T", "U"]


def test_it_is_read_while_somebody_writes_and_not_changed(desk: Desk, used: str) -> None:
    with desk.state.transaction() as db:
        db.execute("DELETE FROM pool")
        assert read_only.pool_types(used) == ["T", "U"]
    assert read_only.pool_types(used) == []
    before = os.listdir("/proc/self/fd")
    assert read_only.resource_names(used) != []
    assert os.listdir("/proc/self/fd") == before


def test_handles_with_who_holds_them(desk: Desk, used: str) -> None:
    (held,) = desk.service.handles.active()
    assert read_only.handle_ids(used, released_too=False) == [(held.id, held.holder_identity)]
    released, same = read_only.handle_ids(used, released_too=True)
    assert same == (held.id, held.holder_identity)
    assert released[0].startswith("T-")
    assert read_only.handle_types(used, "local:") == ["T", "U"]
    assert read_only.handle_types(used, "etcd://host") == []


def test_properties_are_each_once(desk: Desk, used: str) -> None:
    said = [("U--00", {"zone": "b", "arch": "x"}), ("U--01", {"zone": "b"}), ("T--00", {})]
    columns = {"by_default": 0, "cordoned": 0, "leaves": 0, "joined": 0}
    with desk.state.transaction() as db:
        for name, properties in said:
            row = {"name": name, **columns, "properties": json.dumps(properties)}
            insert(db, "member", row, replace=True)
    assert read_only.properties(used) == [("arch", "x"), ("zone", "b")]
    with desk.state.transaction() as db:
        db.execute("UPDATE member SET properties = '{' WHERE name = 'U--01'")
    assert read_only.properties(used) == []
    with desk.state.transaction() as db:
        db.execute("UPDATE member SET properties = '5' WHERE name = 'U--01'")
    assert read_only.properties(used) == []


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
class TestWhereNothingCanBeRead:
    def test_there_is_nothing_and_nothing_is_made(
        self, read: Callable[[str], object], tmp_path: Path
    ) -> None:
        assert read(str(tmp_path / "none")) == []
        assert os.listdir(tmp_path) == []

    def test_of_a_damaged_database_either(self, read: Callable[[str], object], used: str) -> None:
        Path(used, "state.db").write_bytes(b"\0" * 8192)
        assert read(used) == []

    def test_nor_of_a_folder_that_others_may_write(
        self, read: Callable[[str], object], used: str
    ) -> None:
        os.chmod(used, 0o777)
        assert read(used) == []
