"""leasectl.state.reads, .rows, .read_only: what is read of a state directory at one instant."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Callable

import pytest

from leasectl.leases.recovery import release_abandoned
from leasectl.leases.release import release
from leasectl.model import Process, Request, whole
from leasectl.state import pipes, read_only, reads, rows
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.reads import snapshot
from leasectl.state.rows import insert
from leasectl.system.process import is_dead, this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.state.held import made

US = this_process()


def test_those_never_end_that_nobody_follows_and_no_time_ends(changing: State) -> None:
    with_ttl = Request("T", ttl_seconds=60.0)
    made(changing, "T-1")
    made(changing, "T-2", guard=US)
    made(changing, "T-3", waiter=US)  # it hasn't told of it
    made(changing, "T-4", with_ttl, explicit_ttl=True)
    made(changing, "T-5", with_ttl)  # which the keeper renews
    made(changing, "T-6", Request("T", scope="test", ttl_seconds=60.0), explicit_ttl=True)
    delayed = made(changing, "T-7")
    Handles(changing).timers.arm(whole(delayed), 9.0)
    made(changing, "T-8", Request("T", labels=(("serve:key", "a"),)), served=True)
    made(changing, "T-9", with_ttl, explicit_ttl=True, runner=US)
    Handles(changing).release(made(changing, "T-a"), now=8.0)
    assert reads.never_ending(changing) == ["T-1", "T-5", "T-9"]
    assert reads.on_record_elsewhere(changing) == 1


def test_those_of_other_namespaces_are_whose_processes_are_there(changing: State) -> None:
    elsewhere = US._replace(pid_namespace=1)
    made(changing, "T-1", guard=US, waiter=US)
    made(changing, "T-2", guard=elsewhere)
    made(changing, "T-3", waiter=elsewhere)
    made(changing, "T-4")
    found = reads.of_other_namespaces(changing, US.pid_namespace)
    assert found == ["T-2", "T-3"]


def test_those_held_since_before_a_time_got_something_then(changing: State) -> None:
    made(changing, "T-1", at=100.0)
    made(changing, "T-2", at=101.0)
    Handles(changing).release(made(changing, "T-3", at=1.0), now=8.0)
    assert reads.held_since_before(changing, 101.0) == ["T-1"]


def test_names_on_record_are_in_the_order_of_the_grant(changing: State) -> None:
    made(changing, "T-2", Request("T", count=2))
    made(changing, "T-1", waiter=US)
    made(changing, "T-3", adopted_claim="somebody")
    assert list(reads.names_on_record(changing)) == [
        ("T-1", False, ("T-1--00",)),
        ("T-2", True, ("T-2--00", "T-2--01")),
    ]


def cursor(state: State) -> str:
    return str(state.query("SELECT purge_cursor FROM meta")[0][0])


def change(state: State, value: str) -> None:
    with state.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = ?", (value,))


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_written_meanwhile_is_seen_afterwards(state: State, fails: bool) -> None:
    with contextlib.closing(State.open(state.directory)) as other:
        with contextlib.suppress(ZeroDivisionError), snapshot(state):
            assert cursor(state) == ""
            change(other, "x")
            assert cursor(state) == ""
            if fails:
                raise ZeroDivisionError
        assert cursor(state) == "x"
        assert not state.db.in_transaction


def test_inside_another_it_is_of_that_instant(state: State) -> None:
    with contextlib.closing(State.open(state.directory)) as other, snapshot(state):
        assert cursor(state) == ""
        change(other, "x")
        with snapshot(state):
            assert cursor(state) == ""
        assert cursor(state) == "", "the inner one doesn't end the outer"


def test_inside_a_transaction_it_shows_what_that_has_changed_and_undoes_nothing(
    state: State,
) -> None:
    with state.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = 'x'")
        with snapshot(state):
            assert cursor(state) == "x"
    assert cursor(state) == "x"


def test_one_that_is_open_holds_no_writer_up(state: State) -> None:
    with snapshot(state):
        assert cursor(state) == ""
        with contextlib.closing(State.open(state.directory)) as other:
            change(other, "x")
            change(other, "y")
    assert cursor(state) == "y"


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


@pytest.mark.parametrize(
    ("ttl", "scope", "is_explicit", "is_followed", "so"),
    [
        (60.0, "step", False, False, True),
        (60.0, "step", False, True, True),
        (60.0, "step", True, False, False),
        (60.0, "step", True, True, True),
        (60.0, "test", False, False, False),
        (60.0, "test", True, True, False),
        (None, "step", False, False, False),
        (None, "step", True, True, False),
    ],
)
def test_a_ttl_is_renewed_unless_its_holder_is_to_do_that_or_nobody(
    ttl: float | None, scope: str, is_explicit: bool, is_followed: bool, so: bool
) -> None:
    assert rows.is_renewed(ttl, scope, is_explicit=is_explicit, is_followed=is_followed) is so


def test_what_is_missing_is_written_as_nothing_and_read_so() -> None:
    assert (rows.encode_process(None), rows.parse_optional_process(None)) == (None, None)
    assert rows.encode_range(None) is None
    assert (rows.encode_labels(()), rows.parse_labels("")) == ("", ())
    assert (rows.encode_where(()), rows.parse_where("")) == ("", ())


@pytest.mark.parametrize("text", ["5", "null", "[5]", '[["zone", "b"]]', "zone"])
def test_conditions_that_are_none_are_damage(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rows.parse_where(text)


def test_what_is_there_reads_as_it_was_written() -> None:
    us = this_process()
    assert rows.parse_optional_process(rows.encode_process(us)) == us
    assert rows.encode_range((60.5, 120.0)) == "60.5,120.0"
    where = (("zone", 'b"', True), ("arch", "", False))
    assert rows.parse_where(rows.encode_where(where)) == where
    assert rows.parse_labels("\na=b\n\n") == (("a", "b"),)


def test_a_row_is_in_place_of_another_only_if_that_is_meant(state: State) -> None:
    rows.insert(state.db, "note", {"name": "a", "fence": 1, "text": "first"})
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        rows.insert(state.db, "note", {"name": "a", "fence": 2, "text": "second"})
    assert [tuple(row) for row in state.query("SELECT * FROM note")] == [("a", 1, "first")]
    # By their names, in whatever order.
    rows.insert(state.db, "note", {"text": "third", "name": "a", "fence": 3}, replace=True)
    assert [tuple(row) for row in state.query("SELECT * FROM note")] == [("a", 3, "third")]


GONE = this_process()._replace(start_time=1)  # whose pid another has by now


def test_only_those_whose_guard_or_waiter_is_dead_are_left(desk: Desk) -> None:
    desk.pool(4)
    desk.acquire()
    desk.acquire(guard=this_process())
    guarded, waited = desk.acquire(guard=GONE), desk.acquire()
    only_watched = pipes.ids_of_the_dead(desk.state, only_watched=True)
    assert only_watched == [guarded.id]
    with desk.state.transaction() as db:
        waiter = (GONE.encode(), waited.id)
        db.execute("UPDATE handle SET waiter = ? WHERE id = ?", waiter)
    assert pipes.ids_of_the_dead(desk.state) == sorted([guarded.id, waited.id])
    assert pipes.ids_of_the_dead(desk.state, only_watched=True) == [guarded.id]
    release_abandoned(desk.service)
    assert pipes.ids_of_the_dead(desk.state) == []
    assert len(desk.held()) == 2


@pytest.mark.parametrize("whose", ["guard", "waiter"])
def test_one_whose_process_none_can_be_is_left_for_who_says_what_is_wrong(
    desk: Desk, whose: str
) -> None:
    desk.pool(2)
    desk.acquire(guard=this_process())
    damaged = desk.acquire()
    with desk.state.transaction() as db:
        db.execute(f"UPDATE handle SET {whose} = 'somebody' WHERE id = ?", (damaged.id,))
    assert pipes.ids_of_the_dead(desk.state) == [damaged.id]


def test_of_many_processes_no_more_are_looked_at_than_is_said(desk: Desk) -> None:
    desk.pool(3)
    # Those pids are there, so that only a look tells that they are others' by now.
    gone = [this_process()._replace(pid=pid, start_time=1) for pid in (os.getpid(), os.getppid())]
    handles = sorted(desk.acquire(guard=each).id for each in gone)
    assert pipes.ids_of_the_dead(desk.state) == handles
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=2) == handles
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=1) == handles[:1]
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=0) == []


def test_a_process_that_guards_many_is_asked_for_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(20)
    for _ in range(20):
        desk.acquire(guard=this_process())
    asked = []

    def ask(process: Process) -> bool:
        asked.append(process)
        return is_dead(process)

    monkeypatch.setattr("leasectl.system.process.is_dead", ask)
    assert pipes.ids_of_the_dead(desk.state) == []
    assert asked == [this_process()]


def test_many_handles_are_read_in_as_many_statements_as_one(desk: Desk) -> None:
    desk.pool(20)
    handles = [desk.acquire(Request("T", count=2)) for _ in range(10)]
    said: list[str] = []
    desk.state.db.set_trace_callback(said.append)
    read = desk.service.handles.active()
    desk.state.db.set_trace_callback(None)
    assert sorted(read) == sorted(handles)
    assert len(said) == 2
