"""leasectl.state.handles"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leasectl.errors import CorruptState, NotFound
from leasectl.model import Handle, Lease, Process, ReleaseTarget, Request, whole
from leasectl.state.directory import State
from leasectl.state.handles import (
    _NEXT,
    Handles,
    explain_loss,
    forget_plain,
    is_plain,
    is_watched,
    new_id,
    purge,
    renews_itself,
    seconds_since,
)
from leasectl.state.named_pipe import NamedPipe
from leasectl.state.rows import (
    SERVED_KEY_LABEL,
    is_on_record_elsewhere,
)
from leasectl.state.uses import Uses
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, this_process
from tests.kit.recorded import watched
from tests.kit.waits import wait_readable


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


def part(handle: Handle, *names: str) -> ReleaseTarget:
    return ReleaseTarget(handle.id, handle.acquisition, names)


def names_file(state: State) -> str:
    return Path(state.names_path("T-abcdef")).read_text()


def files(state: State) -> list[str]:
    return sorted(os.listdir(state.path("handles")))


class TestRecords:
    def test_a_record_reads_back_as_it_was_written(self, state: State, handles: Handles) -> None:
        request = Request(
            type="T",
            count=2,
            name=None,
            ttl_seconds=7.5,
            release_after_seconds=1200.0,
            scope="test",
            labels=(("pr", "1=2"), ("empty", "")),
            where=(("zone", "b", True), ("arch", "x", False)),
        )
        written = a_handle(
            request=request, guard=this_process(), waiter=this_process(), shared_dir="/x y"
        )
        with state.transaction():
            handles.create(written, remote=False)
        assert handles.require(written.id) == written

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

    def test_a_lease_reads_back_with_what_was_asked_for(
        self, state: State, handles: Handles
    ) -> None:
        request = Request("T", ttl_seconds=60.0, labels=(("pr", "7"),))
        lease = Lease("T--00", 5, 3, 2, "job/1/host/T-abcdef", 10.0, 11.0, 60.0, 4, (("pr", "7"),))
        assert held(state, handles, a_handle(request=request), lease).leases == (lease,)

    def test_ids_are_of_all_that_there_are_records_of(self, state: State, handles: Handles) -> None:
        assert handles.ids() == set()
        held(state, handles, a_handle("T-1"), a_lease())
        released(state, handles, a_handle("T-2"), now=1.0)
        assert handles.ids() == {"T-1", "T-2"}
        assert [each.id for each in handles.active()] == ["T-1"]

    def test_a_grant_reads_back_in_the_order_of_fences(
        self, state: State, handles: Handles
    ) -> None:
        handle = a_handle(request=Request("T", count=2))
        leases = (a_lease("T--09", fence=1), a_lease("T--00", fence=2))
        with state.transaction():
            handles.create(handle, remote=False)
            handles.grant(handle, leases, now=0.0)
            assert handles.timers.arm_first(whole(handle), 77.5) == 77.5
        read = handles.require(handle.id)
        assert (read.state, read.leases, read.release_at) == ("held", leases, 77.5)
        assert read.names == ("T--09", "T--00")
        with state.transaction():
            handles.announce(read, guard=None, runner=None)
        assert Path(state.names_path(handle.id)).read_text() == "T--09\nT--00"

    def test_what_arrives_one_by_one_reads_back_in_that_order(
        self, state: State, handles: Handles
    ) -> None:
        handle = a_handle(request=Request("T", count=3))
        with state.transaction():
            handles.create(handle, remote=True)
            for name in ("T--02", "T--00", "T--01"):
                handles.arrived(handle, a_lease(name))
            handles.returned(handle, "T--02")
        read = handles.require(handle.id)
        assert (read.state, read.names) == ("acquiring", ("T--00", "T--01"))
        places = "SELECT name, position FROM lease ORDER BY position"
        assert [tuple(row) for row in state.query(places)] == [("T--00", 2), ("T--01", 3)]
        with state.transaction():
            handles.grant(read, read.leases, now=0.0)
        assert [tuple(row) for row in state.query(places)] == [("T--00", 1), ("T--01", 2)]
        assert files(state) == []  # until it is told

    def test_what_had_arrived_is_a_part_of_the_grant(self, state: State, handles: Handles) -> None:
        handle = a_handle(request=Request("T", count=2))
        leases = (a_lease("T--01", fence=1), a_lease("T--00", fence=2))
        with state.transaction():
            handles.create(handle, remote=True)
            handles.arrived(handle, leases[0])
            handles.grant(handle, leases, now=0.0)
        read = handles.require(handle.id)
        assert (read.state, read.leases) == ("held", leases)

    def test_a_hostile_name_is_shown_in_one_printable_line(self, handles: Handles) -> None:
        with pytest.raises(NotFound) as refused:
            handles.require("x\n\x1b[31m")
        assert str(refused.value).isprintable()

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

    def test_what_was_asked_for_at_a_backend_is_known_by_its_types(
        self, state: State, handles: Handles
    ) -> None:
        with state.transaction():
            for number, (pool_type, url) in enumerate(
                [("U", "local:"), ("T", "local:"), ("U", "local:"), ("V", "http://x")]
            ):
                asked = a_handle(f"h{number}", request=Request(pool_type), backend=url)
                handles.create(asked, remote=False)
        assert handles.types_at("local:") == ["T", "U"]
        assert handles.types_at("http://y") == []

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

    def test_ids_are_of_the_type_and_do_not_repeat(self) -> None:
        ids = {new_id("azure--install") for _ in range(1000)}
        assert len(ids) == 1000
        assert all(re.fullmatch(r"azure--install-[A-Za-z0-9]{6}", each) for each in ids)


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

    @pytest.mark.parametrize(
        ("current", "acquisition"), [("acquiring", 2), ("held", 2), ("released", 2), ("held", 3)]
    )
    def test_one_is_current_until_it_is_released_or_acquired_again(
        self, state: State, handles: Handles, current: str, acquisition: int
    ) -> None:
        assert handles.current("T-abcdef", 2) is None
        handle = a_handle(state=current, acquisition=acquisition)
        with state.transaction():
            handles.create(handle, remote=False)
        is_so = current != "released" and acquisition == 2
        assert handles.current("T-abcdef", 2) == (handle if is_so else None)

    def test_a_grant_notes_when_it_was_and_a_request_when_it_was_made(
        self, state: State, handles: Handles
    ) -> None:
        handle = a_handle()
        with state.transaction():
            handles.create(handle, remote=False, now=3.0)
            handles.grant(handle, [a_lease()], now=5.0)
        assert seconds_since(state, handle.id, "queued", now=10.0) == 7.0
        assert seconds_since(state, handle.id, "granted", now=10.0) == 5.0

    @pytest.mark.parametrize("remote", [True, False])
    def test_a_further_one_from_a_server_is_watched_from_the_start_as_the_first_is(
        self, state: State, handles: Handles, remote: bool
    ) -> None:
        handle = held(state, handles, a_handle(), a_lease())
        assert watched(state) == []
        with state.transaction():
            again = handles.begin_again(handle, this_process(), remote=remote, now=1.0)
        assert watched(state) == ([again] if remote else [])

    def test_telling_names_the_guard_and_ends_the_waiters_part(
        self, state: State, handles: Handles
    ) -> None:
        handle = held(state, handles, a_handle(waiter=this_process()), a_lease())
        assert handles.unannounced() == handles.unannounced("T") == [handle]
        assert handles.unannounced("U") == []
        with state.transaction():
            assert handles.announce(handle, guard=this_process(), runner=None)
        assert handles.unannounced() == []
        told = handles.require(handle.id)
        assert (told.waiter, told.guard) == (None, this_process())
        assert watched(state) == [told]

    def test_who_still_acquires_is_woken_when_that_is_no_longer_wanted(
        self, state: State, handles: Handles
    ) -> None:
        handle = a_handle(waiter=this_process())
        with state.transaction():
            handles.create(handle, remote=False)
        pipe = NamedPipe(state.cancel_pipe(handle.id, handle.acquisition))
        with state.transaction():
            handles.cancel(handle)
        wait_readable(pipe.fd)
        pipe.close()
        assert [tuple(row) for row in state.query("SELECT cancelled FROM handle")] == [(1,)]

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

    @pytest.mark.parametrize("what", ["released", "acquired again", "forgotten", "cancelled"])
    def test_what_is_no_longer_current_can_not_be_told(
        self, state: State, handles: Handles, what: str
    ) -> None:
        handle = held(state, handles, a_handle(waiter=this_process()), a_lease())
        with state.transaction():
            if what == "released":
                handles.release(handle, now=0)
            elif what == "acquired again":
                handles.begin_again(handle, this_process(), remote=False, now=1.0)
            elif what == "cancelled":
                handles.cancel(handle)
            else:
                handles.forget(handle.id, handle.acquisition)
            assert not handles.announce(handle, guard=None, runner=None)
        assert not os.path.exists(state.names_path(handle.id)) or names_file(state) == ""


class TestDropping:
    def test_with_the_last_name_the_handle_is_released(
        self, state: State, handles: Handles
    ) -> None:
        handle = held(
            state, handles, a_handle(), a_lease("a"), a_lease("b", fence=2), a_lease("c", fence=3)
        )
        with state.transaction():
            handles.timers.arm(part(handle, "b"), 5.0)
            handles.drop(handle, ["b", "unknown"], now=1.0)
        partly = handles.require(handle.id)
        assert (partly.state, partly.names, partly.lost) == ("held", ("a", "c"), False)
        assert Path(state.names_path(handle.id)).read_text() == "a\nc"
        assert handles.timers.armed() == []
        with state.transaction():
            handles.drop(partly, ["a", "c"], now=1.0)
        assert handles.require(handle.id).state == "released"
        assert Path(state.names_path(handle.id)).read_text() == ""

    def test_what_is_given_back_alone_is_no_longer_among_its_names(
        self, state: State, handles: Handles
    ) -> None:
        handle = held(state, handles, a_handle(), a_lease("a"), a_lease("b", fence=2))
        with state.transaction():
            handles.returned(handle, "a")
        assert handles.require(handle.id).names == ("b",)
        assert Path(state.names_path(handle.id)).read_text() == "b"

    @pytest.mark.parametrize("lost_first", [True, False])
    def test_a_loss_is_remembered_until_the_next_acquisition(
        self, state: State, handles: Handles, lost_first: bool
    ) -> None:
        handle = held(state, handles, a_handle(), a_lease("a"), a_lease("b", fence=2))
        with state.transaction():
            handles.drop(handle, ["a"], now=1.0, lost=lost_first)
        with state.transaction():
            handles.drop(handles.require(handle.id), ["b"], now=1.0, lost=not lost_first)
        over = handles.require(handle.id)
        assert (over.state, over.lost) == ("released", True)
        with state.transaction():
            handles.begin_again(over, this_process(), remote=False, now=1.0)
        assert not handles.require(handle.id).lost

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

    def test_who_runs_under_it_is_woken_when_it_is_released(
        self, state: State, handles: Handles
    ) -> None:
        handle = held(state, handles, a_handle(runner=this_process()), a_lease())
        pipe = NamedPipe(state.runner_pipe(handle.id))
        with state.transaction():
            handles.release(handle, now=1.0)
        assert is_readable(pipe.fd, 0)
        pipe.close()
        over = handles.require(handle.id)
        assert (over.state, over.runner, over.waiter, over.lost) == ("released", None, None, False)


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

    def test_a_released_record_goes_with_its_guard(
        self, state: State, handles: Handles, dead: Process
    ) -> None:
        released(state, handles, a_handle(guard=dead), now=0.0)
        self.purge(state, handles, now=1.0)
        assert handles.load("T-abcdef") is None
        assert files(state) == []

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

    def test_the_record_of_a_lost_lease_goes_when_its_run_has_ended_too(
        self, state: State, handles: Handles, dead: Process
    ) -> None:
        handle = held(state, handles, a_handle(guard=dead, runner=dead), a_lease())
        with state.transaction():
            handles.release(handle, now=0.0, lost=True)
        self.purge(state, handles, now=1.0)
        assert handles.load("T-abcdef") is None

    def test_a_guard_in_a_foreign_namespace_may_live(self, state: State, handles: Handles) -> None:
        foreign = this_process()._replace(pid_namespace=1)
        released(state, handles, a_handle(guard=foreign), now=0.0)
        self.purge(state, handles, now=1e9)
        assert files(state) == ["T-abcdef"]

    def test_what_is_held_is_never_purged(
        self, state: State, handles: Handles, dead: Process
    ) -> None:
        held(state, handles, a_handle("T-1"), a_lease("a"))
        held(state, handles, a_handle("T-2", guard=dead), a_lease("b"))
        self.purge(state, handles, now=1e9)
        assert [handle.id for handle in handles.active()] == ["T-1", "T-2"]

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

    def test_is_forgotten_with_all_that_there_is_of_it(
        self, state: State, handles: Handles
    ) -> None:
        handle = held(state, handles, a_handle(), a_lease("a"), a_lease("b", fence=2))
        other = held(state, handles, a_handle("T-other"), a_lease("c"))
        with state.transaction():
            for each in (handle, other):
                state.stage_names(each.id, each.names)
        with state.transaction():
            forget_plain(state, handle)
        assert handles.ids() == {other.id}
        assert [name for (name,) in state.query("SELECT name FROM lease")] == ["c"]
        assert files(state) == [other.id]


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


@pytest.mark.parametrize(
    ("followed", "is_needed"),
    [({}, False), ({"guard": this_process()}, True), ({"runner": this_process()}, True)],
    ids=["nobody", "guard", "run"],
)
def test_a_ttl_of_ones_own_is_renewed_while_somebody_follows(
    followed: dict[str, Any], is_needed: bool
) -> None:
    request = Request("T", ttl_seconds=5.0)
    own = a_handle("T-abcdef", request=request, explicit_ttl=True, **followed)
    assert renews_itself(own) is is_needed
    assert is_watched(own, remote=False) is is_needed


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


@pytest.mark.parametrize("is_guarded", [True, False])
def test_one_that_only_marks_had_the_keeper_see_to_is_let_go_by_it(
    state: State, handles: Handles, is_guarded: bool
) -> None:
    guard = this_process() if is_guarded else None
    handle = held(state, handles, a_handle(guard=guard), a_lease())
    uses = Uses(state)
    with state.transaction():
        uses.have_watched([handle.id])
    assert watched(state) == [handle]
    with state.transaction():
        uses.let_go(handle)
    assert watched(state) == ([handle] if is_guarded else [])


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
