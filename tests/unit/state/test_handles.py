"""leasectl.state.handles and .rows: records of handles."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from typing import Any

import pytest

from leasectl.errors import CorruptState
from leasectl.model import Handle, Lease, Process, Request, whole
from leasectl.state import rows
from leasectl.state.directory import State
from leasectl.state.handles import (
    _NEXT,
    Handles,
    explain_loss,
    is_plain,
    is_watched,
    purge,
    seconds_since,
)
from leasectl.state.rows import (
    SERVED_KEY_LABEL,
    is_on_record_elsewhere,
)
from leasectl.system.process import identify, this_process
from tests.kit.recorded import watched


@pytest.fixture
def handles(state: State) -> Handles:
    return Handles(state)


@pytest.fixture
def dead() -> Process:
    """A process that was."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        name = identify(process.pid)
        process.kill()
    return name


def a_handle(handle_id: str = "T-abcdef", **fields: object) -> Handle:
    plain = Handle(
        id=handle_id,
        backend="local:",
        request=Request("T"),
        owner="job/1",
        holder_identity=f"job/1/host/{handle_id}",
        state="acquiring",
        acquisition=1,
    )
    return plain._replace(**fields)  # type: ignore[arg-type]


def a_lease(name: str = "T--00", *, fence: int = 1, identity: str = "job/1/host/T-abcdef") -> Lease:
    return Lease(
        name=name,
        fence=fence,
        ticket=3,
        grant=2,
        holder_identity=identity,
        acquire_time=10.0,
        renew_time=11.0,
        lease_duration_seconds=None,
        lease_transitions=4,
    )


def held(state: State, handles: Handles, handle: Handle, *leases: Lease) -> Handle:
    """Bring a handle to the state held."""
    with state.transaction():
        handles.create(handle, remote=False)
        handles.grant(handle, leases, now=0.0)
    return handles.require(handle.id)


def released(state: State, handles: Handles, handle: Handle, *, now: float) -> None:
    with state.transaction():
        handles.create(handle, remote=False)
        handles.grant(handle, (), now=0.0)
        handles.release(handle, now=now)


def files(state: State) -> list[str]:
    return sorted(os.listdir(state.path("handles")))


class TestRecords:
    @pytest.mark.parametrize("state_of_it", ["acquiring", "held", "released"])
    def test_all_that_a_record_can_say_reads_back(
        self, state: State, handles: Handles, state_of_it: str
    ) -> None:
        us = this_process()
        request = Request(
            "T", 3, "T--07", 7.5, 1200.0, "test", (("pr", "7"),), ("U", "V"), -5, (60.5, 120.0),
            (("zone", "b", True),), "answer",
        )  # fmt: skip
        written = a_handle(
            backend="http://x",
            request=request,
            owner="somebody@host",
            holder_identity="somebody@host/host/T-abcdef",
            state=state_of_it,
            acquisition=3,
            guard=us._replace(pid=11),
            waiter=us._replace(pid=12),
            runner=us._replace(pid=13),
            shared_dir="/shared",
            lost=True,
            settings='{"user": "ci"}',
            lost_replies=4,
            cancelled=True,
            adopted_claim="T-other/1",
            served=True,
            unconfirmed=True,
            explicit_ttl=True,
            granted_type="V",
            joined=True,
        )
        with state.transaction():
            handles.create(written, remote=False)
        assert handles.require(written.id) == written

    @pytest.mark.parametrize("preferred", ["local:", "http://x"])
    def test_of_both_sides_of_a_connection_the_one_that_is_preferred_holds_a_name(
        self, state: State, handles: Handles, preferred: str
    ) -> None:
        both = {
            url: held(state, handles, a_handle(f"T-{number}", backend=url), a_lease())
            for number, url in enumerate(["http://x", "local:"])
        }
        found = handles.holding("T--00", prefer=lambda each: each.backend == preferred)
        assert found is not None
        assert found.id == both[preferred].id

    @pytest.mark.parametrize(
        "fields",
        [
            {"runner": this_process()},
            {"request": Request("T", ttl_seconds=5.0)},
            {"request": Request("T", labels=(("pr", "7"),))},
            {"served": True},
            {"unconfirmed": True},
        ],
        ids=["run", "ttl", "labels", "served", "unconfirmed"],
    )
    def test_those_tell_something_of_which_more_is_on_record(
        self, state: State, handles: Handles, fields: dict[str, Any]
    ) -> None:
        released(state, handles, a_handle("T-over", **fields), now=1.0)
        told = held(state, handles, a_handle(**fields), a_lease())
        assert [each.id for each in handles.telling()] == [told.id]


class TestAcquisitions:
    def test_of_what_became_of_the_last_acquisition_the_next_knows_nothing(
        self, state: State, handles: Handles
    ) -> None:
        us = this_process()
        request = Request("T", release_after_seconds=60.0, release_between_seconds=(30.0, 90.0))
        before = a_handle(
            request=request,
            lost=True,
            lost_replies=2,
            cancelled=True,
            unconfirmed=True,
            acquisition=4,
        )
        released(state, handles, before, now=9.0)
        asked = before.request._replace(release_after_seconds=45.0)
        with state.transaction():
            explain_loss(state, before, "its machine is gone")
            over = handles.require(before.id)._replace(request=asked)
            assert (over.lost_reason, over.unconfirmed) == ("its machine is gone", True)
            again = handles.begin_again(over, us, runner=us, remote=False, now=11.0)
        assert again == a_handle(request=asked, acquisition=5, waiter=us, runner=us)
        assert handles.require(again.id) == again
        assert seconds_since(state, again.id, "queued", now=12.5) == 1.5
        assert watched(state) == [again]

    def test_of_several_types_the_one_granted_is_on_record_until_the_next_grant(
        self, state: State, handles: Handles
    ) -> None:
        wanted = Request("T", other_types=("U", "V"))
        asked = a_handle(request=wanted, waiter=this_process())
        with state.transaction():
            handles.create(asked, remote=False)
        assert (handles.require(asked.id), asked.type) == (asked, None)
        assert handles.require(asked.id).request.types == ("T", "U", "V")
        with state.transaction():
            handles.grant(asked._replace(granted_type="U"), [a_lease("U--00")], now=0.0)
        granted = handles.require(asked.id)
        assert (granted.type, granted.request) == ("U", wanted)
        assert handles.unannounced("V", "U") == handles.unannounced() == [granted]
        assert handles.unannounced("T") == []
        with state.transaction():
            handles.release(granted, now=0)
            again = handles.begin_again(granted, this_process(), remote=False, now=1.0)
        assert handles.require(asked.id) == again
        assert (again.type, again.request.types) == ("U", ("T", "U", "V"))

    def test_of_each_of_several_types_it_is_of_all(self, state: State, handles: Handles) -> None:
        wanted = Request("T", other_types=("U", "V"), needs_all=True)
        asked = a_handle(request=wanted, waiter=this_process())
        with state.transaction():
            handles.create(asked, remote=False)
            handles.grant(asked, [a_lease("T--00"), a_lease("U--00"), a_lease("V--00")], now=0.0)
        granted = handles.require(asked.id)
        assert (granted.request, granted.type) == (wanted, None)
        assert granted.leased_types == ("T", "U", "V")
        assert handles.unannounced("V") == [granted]


class TestDropping:
    @pytest.mark.parametrize("then", ["released", "acquired again"])
    def test_pipes_go_with_whoever_is_dead(
        self, state: State, handles: Handles, dead: Process, then: str
    ) -> None:
        us = this_process()
        for waiter, runner, left in (
            (us, us, ["T-abcdef.1.cancel", "T-abcdef.run"]),
            (us, dead, ["T-abcdef.1.cancel"]),
            (dead, us, ["T-abcdef.run"]),
            (dead, dead, []),
        ):
            handle = held(state, handles, a_handle(waiter=waiter, runner=runner), a_lease())
            for pipe in (state.runner_pipe(handle.id), state.cancel_pipe(handle.id, 1)):
                os.mkfifo(pipe)
            with state.transaction():
                if then == "released":
                    handles.release(handle, now=1.0)
                else:
                    handles.begin_again(handle, us, remote=False, now=1.0)
            assert sorted(os.listdir(state.path("waiters"))) == left
            with state.transaction() as db:
                db.execute("DELETE FROM handle")
            for name in left:
                os.unlink(state.path("waiters", name))


class TestForgetting:
    def test_leaves_nothing(self, state: State, handles: Handles) -> None:
        handle = held(state, handles, a_handle(), a_lease())
        for pipe in (state.runner_pipe(handle.id), state.cancel_pipe(handle.id, 1)):
            os.mkfifo(pipe)
        with state.transaction():
            handles.timers.arm(whole(handle), 5.0)
            handles.forget(handle.id, 2)  # which isn't the one that is current
        assert handles.require(handle.id).names == ("T--00",)
        assert len(os.listdir(state.path("waiters"))) == 2
        with state.transaction():
            handles.forget(handle.id, 1)
        assert handles.load(handle.id) is None
        for table in ("lease", "timer"):
            assert state.query(f"SELECT * FROM {table}") == []
        assert os.listdir(state.path("waiters")) == files(state) == []


class TestPurge:
    def purge(self, state: State, handles: Handles, now: float, rounds: int = 5) -> None:
        for _ in range(rounds):
            with state.transaction():
                purge(state, now=now, limit=3)

    def test_a_released_record_stays_while_its_guard_lives(
        self, state: State, handles: Handles
    ) -> None:
        released(state, handles, a_handle(guard=this_process()), now=0.0)
        self.purge(state, handles, now=1e9)
        assert handles.require("T-abcdef").state == "released"
        assert files(state) == ["T-abcdef"]

    def test_a_released_record_without_a_guard_stays_for_a_day(
        self, state: State, handles: Handles
    ) -> None:
        released(state, handles, a_handle(), now=100.0)
        self.purge(state, handles, now=100.0 + 24 * 3600 - 1)
        assert files(state) == ["T-abcdef"]
        self.purge(state, handles, now=100.0 + 24 * 3600)
        assert handles.load("T-abcdef") is None
        assert files(state) == []

    def test_the_record_of_a_lost_lease_stays_while_its_run_ends_the_rest_of_its_command(
        self, state: State, handles: Handles, dead: Process
    ) -> None:
        """Whoever waits for the lease waits for the run, which only this record names."""
        handle = held(state, handles, a_handle(guard=dead, runner=this_process()), a_lease())
        with state.transaction():
            handles.release(handle, now=0.0, lost=True)
        self.purge(state, handles, now=1e9)
        assert handles.require("T-abcdef").runner == this_process()

    def test_a_guard_in_a_foreign_namespace_may_live(self, state: State, handles: Handles) -> None:
        foreign = this_process()._replace(pid_namespace=1)
        released(state, handles, a_handle(guard=foreign), now=0.0)
        self.purge(state, handles, now=1e9)
        assert files(state) == ["T-abcdef"]

    def test_what_is_held_is_passed_over_a_few_at_a_time_too(
        self, state: State, handles: Handles
    ) -> None:
        for number in range(7):
            held(state, handles, a_handle(f"T-{number}"), a_lease(f"r{number}"))
        released(state, handles, a_handle("T-9"), now=0.0)
        self.purge(state, handles, now=1e9, rounds=2)
        assert handles.load("T-9") is not None
        self.purge(state, handles, now=1e9, rounds=1)
        assert handles.load("T-9") is None

    def test_the_next_few_of_many_come_without_sorting_all(self, state: State) -> None:
        plan = state.query(f"EXPLAIN QUERY PLAN {_NEXT}", "", 48)
        assert "PRIMARY KEY" in str([row["detail"] for row in plan])
        assert "TEMP B-TREE" not in str([row["detail"] for row in plan])

    def test_all_are_looked_at_a_few_at_a_time(self, state: State, handles: Handles) -> None:
        keep = {f"T-{number:02d}": number % 4 == 0 for number in range(20)}
        for handle_id, kept in keep.items():
            released(state, handles, a_handle(handle_id), now=1e6 if kept else 0.0)
        with state.transaction():
            purge(state, now=1e6, limit=3)
        assert len(files(state)) == 18  # T-01 and T-02 of the first three
        self.purge(state, handles, now=1e6, rounds=8)
        assert files(state) == [handle_id for handle_id, kept in keep.items() if kept]


class TestWhatIsPlain:
    def test_holds_what_it_was_granted_and_nobody_else_has_to_do_with_it(
        self, state: State, handles: Handles
    ) -> None:
        handle = held(state, handles, a_handle(), a_lease())
        assert is_plain(state, handle)
        assert not is_plain(state, handle._replace(acquisition=2))
        assert not is_plain(state, a_handle("T-nobody"))

    def test_has_not_lost_anything(self, state: State, handles: Handles) -> None:
        handle = held(state, handles, a_handle(), a_lease("a"), a_lease("b", fence=2))
        with state.transaction():
            handles.drop(handle, ["a"], now=1.0, lost=True)
        assert not is_plain(state, handles.require(handle.id))


@pytest.mark.parametrize(
    ("handle", "needed"),
    [
        (a_handle(), False),
        (a_handle(guard=Process("b", 1, 1, 1)), True),
        (a_handle(runner=Process("b", 1, 1, 1)), True),
        (a_handle(request=Request("T", release_after_seconds=5.0)), True),
        (a_handle(request=Request("T", ttl_seconds=5.0)), True),
        (a_handle(request=Request("T", ttl_seconds=5.0, scope="test")), False),
        (a_handle(request=Request("T", scope="test")), False),
    ],
)
def test_a_keeper_is_needed_for_what_happens_without_a_command(
    handle: Handle, needed: bool
) -> None:
    assert is_watched(handle, remote=False) is needed


def test_a_keeper_is_needed_for_an_acquisition_from_a_server_until_it_is_announced() -> None:
    under_way = a_handle(waiter=Process("b", 1, 1, 1))
    assert is_watched(under_way, remote=True)
    assert not is_watched(under_way, remote=False)
    assert not is_watched(a_handle(), remote=True)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("state", "lent"),
        ("scope", "world"),
        ("on_reclaim", "perhaps"),
        ("release_between", "60"),
        ("where_properties", "{"),
        ("guard", "nobody"),
        ("waiter", "b:1:x:1"),
        ("runner", "b:1:1"),
    ],
)
def test_a_value_that_no_version_writes_is_reported_as_damage(
    state: State, handles: Handles, column: str, value: str
) -> None:
    with state.transaction() as db:
        handles.create(a_handle(), remote=False)
        db.execute(f"UPDATE handle SET {column} = ?", (value,))
    what = r'^\S*/state\.db holds a bad record of "T-abcdef": .*; if its leases.* mv \S*/state \S*$'
    with pytest.raises(CorruptState, match=what):
        handles.load("T-abcdef")


@pytest.mark.parametrize(
    ("fields", "so"),
    [
        ({"served": True, "request": Request("T", labels=((SERVED_KEY_LABEL, "k"),))}, True),
        ({"served": True, "request": Request("T", labels=(("pr", "7"),))}, False),
        ({"served": True}, False),
        ({"request": Request("T", labels=((SERVED_KEY_LABEL, "k"),))}, False),
    ],
)
def test_a_client_with_records_of_its_own_says_so_to_who_serves_it(
    fields: dict[str, Any], so: bool
) -> None:
    assert is_on_record_elsewhere(a_handle("T-abcdef", **fields)) is so


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
