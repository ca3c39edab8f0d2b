"""Events in the database: written with what they tell of, kept within bounds, followed."""

from __future__ import annotations

import os
import signal

import pytest

from leasectl.errors import InvalidRequest, LeaseError
from leasectl.state import event_rows
from leasectl.state.directory import State
from leasectl.state.event import (
    ALL_EVENTS,
    Event,
    EventFilter,
    Kept,
    Missed,
    add_event,
    parse_kept,
)
from leasectl.state.event_log import StateEventLog, refusal
from leasectl.state.pipes import tidy
from leasectl.system.poll import is_readable
from tests.kit.descriptors import leaving_open
from tests.kit.forking import ending, fork
from tests.kit.waits import eventually, wait_readable

EVENT = Event(
    1, 12.5, "released", "T", ("a", "b"), (3, 4), "T-x", 2, "j/1/h/T-x", 2, -3, 7, 6, 1.5, 2.5,
    "ttl", "why",
)  # fmt: skip


def write(state: State, number: int = 1, *, at: float = 1000.0) -> None:
    with state.transaction():
        for n in range(number):
            state.events.add(at, "queued", "T", handle=f"h{n}")


def numbers(state: State) -> list[int]:
    return [each.number for each in StateEventLog(state).read()]


def cursor(state: State) -> str:
    return str(state.query("SELECT purge_cursor FROM meta")[0][0])


class TestWriting:
    @pytest.mark.parametrize(("wait", "hold"), [(None, None), (1.5, None), (None, 2.5), (0.0, 0.0)])
    def test_how_long_it_took_is_written_as_far_as_that_is_known(
        self, state: State, wait: float | None, hold: float | None
    ) -> None:
        written = EVENT._replace(wait_seconds=wait, hold_seconds=hold)
        with state.transaction():
            add_event(state.events, written)
        assert list(StateEventLog(state).read()) == [written]

    def test_of_types_for_work_that_is_done_once_only_the_work_is_told(self, state: State) -> None:
        reserved = f"once.{'0' * 64}"
        with state.transaction():
            for kind in ("granted", "work begun", "released", "work done"):
                state.events.add(1.0, kind, reserved)
            state.events.add(2.0, "granted", "T")
        found = [(each.type, each.kind) for each in StateEventLog(state).read()]
        assert found == [(reserved, "work begun"), (reserved, "work done"), ("T", "granted")]

    def test_only_of_several_it_takes_more_that_all_are_written_or_none(self, state: State) -> None:
        said: list[str] = []
        state.db.set_trace_callback(said.append)
        write(state)
        assert not [each for each in said if "SAVEPOINT" in each or "RELEASE" in each]
        write(state, 2)
        assert [each for each in said if "events" in each] == ["SAVEPOINT events", "RELEASE events"]
        state.db.set_trace_callback(None)

    @pytest.mark.parametrize("how", ["RAISE(ABORT, 'no')", "RAISE(FAIL, 'no')"])
    def test_a_table_that_takes_none_stops_nothing_and_is_told_of_once(
        self, state: State, how: str
    ) -> None:
        told: list[str] = []
        state.events.warn = told.append
        # The second of two, so that there is something to undo.
        state.db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON event WHEN new.handle = 'h1' "
            f"BEGIN SELECT {how}; END"
        )
        for value in ("x", "y"):
            with state.transaction() as db:
                db.execute("UPDATE meta SET purge_cursor = ?", (value,))
                state.events.add(1.0, "queued", "T", handle="h0")
                state.events.add(1.0, "granted", "T", handle="h1")
            assert cursor(state) == value
        assert numbers(state) == []
        (line,) = told
        assert line.endswith("state.db (no); leases work without them")
        state.db.execute("DROP TRIGGER refuse")
        write(state)
        assert numbers(state) == [1]

    def test_a_table_that_takes_not_even_one_stops_nothing(self, state: State) -> None:
        state.db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON event BEGIN SELECT RAISE(FAIL, 'no'); END"
        )
        with state.transaction() as db:
            db.execute("UPDATE meta SET purge_cursor = 'x'")
            state.events.add(1.0, "queued", "T")
        assert (cursor(state), numbers(state)) == ("x", [])

    def test_where_all_is_undone_with_an_event_that_is_an_error(self, state: State) -> None:
        state.db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON event BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
        )
        with pytest.raises(LeaseError, match=r"\(no\)"), state.transaction() as db:
            db.execute("UPDATE meta SET purge_cursor = 'x'")
            state.events.add(1.0, "queued", "T")
        assert (cursor(state), numbers(state)) == ("", [])

    def test_what_is_left_of_a_full_disk_is_for_leases(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[str] = []
        state.events.warn = told.append
        monkeypatch.setattr(event_rows, "LEFT_FOR_LEASES_BYTES", 1 << 62)
        with state.transaction() as db:
            db.execute("UPDATE meta SET purge_cursor = 'x'")
            state.events.add(1.0, "queued", "T")
        assert cursor(state) == "x"
        assert numbers(state) == []
        assert len(told) == 1
        assert "full" in told[0]

    @pytest.mark.parametrize(("left", "written"), [(4095, []), (4096, [1])])
    def test_four_mebibytes_are_left_for_leases(
        self, state: State, monkeypatch: pytest.MonkeyPatch, left: int, written: list[int]
    ) -> None:
        found = os.statvfs_result([512, 1024, 1 << 20, 1 << 20, left, 0, 0, 0, 0, 255])
        monkeypatch.setattr(os, "fstatvfs", lambda _: found)
        write(state)
        assert numbers(state) == written

    def test_a_disk_that_does_not_say_how_large_it_is_is_not_full(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result([0] * 11))
        write(state)
        assert numbers(state) == [1]

    def test_the_disk_is_looked_at_now_and_then(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[int] = []

        def leaves_room(fd: int) -> bool:
            looks.append(fd)
            return True

        monkeypatch.setattr(event_rows, "leaves_room", leaves_room)
        for _ in range(2 * event_rows._WRITES_PER_LOOK_AT_DISK):
            write(state)
        assert len(looks) == 2

    def test_whether_one_can_be_is_tried_and_undone(self, state: State) -> None:
        write(state)
        assert refusal(state) == ""
        assert not state.db.in_transaction
        assert numbers(state) == [1]
        with state.transaction() as db:
            db.execute(
                "CREATE TRIGGER none BEFORE INSERT ON event BEGIN SELECT RAISE(FAIL, 'no'); END"
            )
        assert refusal(state) == "no"


class TestKeeping:
    def test_as_many_are_kept_as_is_said(self, state: State) -> None:
        state.events.kept_number = 100
        write(state, 300)
        assert numbers(state) == list(range(201, 301))

    @pytest.mark.parametrize(("wanted", "told"), [(0, []), (2, [5, 4]), (5, [5, 4, 3, 2, 1])])
    def test_the_latest_come_first_and_no_more_than_are_wanted(
        self, state: State, wanted: int, told: list[int]
    ) -> None:
        write(state, 5)
        latest = StateEventLog(state).latest(ALL_EVENTS, wanted)
        assert [each.number for each in latest] == told

    def test_what_is_too_much_is_looked_for_now_and_then(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[None] = []
        monkeypatch.setattr(event_rows, "finish_writing", lambda *_, **__: looks.append(None))
        write(state, event_rows._EVENTS_PER_TRIMMING - 1)
        assert len(looks) == 0
        write(state, 2)
        assert len(looks) == 1
        for _ in range(event_rows._EVENTS_PER_TRIMMING - 2):
            write(state)
        assert len(looks) == 1
        write(state)
        assert len(looks) == 2

    def test_old_ones_go_a_few_at_a_time(self, state: State) -> None:
        write(state, 5000, at=1000.0)
        state.events.kept_seconds = 3600.0
        before = len(numbers(state))
        for _ in range(3):
            write(state, 64, at=1000.0 + 7200)
            left = len(numbers(state))
            assert 0 < before + 64 - left <= event_rows._TRIMMED_AT_ONCE
            before = left
        for _ in range(10):
            write(state, 64, at=1000.0 + 7200)
        assert {each.time for each in StateEventLog(state).read()} == {8200.0}

    def test_the_last_one_stays_so_that_no_number_comes_twice(self, state: State) -> None:
        state.events.kept_seconds = 0.0
        for _ in range(5):
            write(state, 64)
        with state.transaction():
            for n in range(64):
                state.events.add(5000.0 + n, "queued", "T")
        assert numbers(state)[-1] == 384

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ("30d,100000", Kept()),
            ("7d", Kept(seconds=7 * 86400.0)),
            ("1h30m,10", Kept(5400.0, 10)),
            ("0", Kept(number=0)),
            ("30d,0", Kept(number=0)),
        ],
    )
    def test_what_is_kept_is_said_as_an_age_and_a_number(self, text: str, kept: Kept) -> None:
        assert parse_kept(text) == kept

    @pytest.mark.parametrize("text", ["x", "30d,", "30d,-1", ",5", "30d,1e3", "1,2,3", "-1d"])
    def test_what_can_not_be_meant_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidRequest, match="LEASECTL_KEEP_EVENTS"):
            parse_kept(text)


class TestFollowing:
    def test_each_who_follows_is_woken(self, state: State) -> None:
        watches = [StateEventLog(state).watch() for _ in range(2)]
        write(state)
        assert all(is_readable(watch.fd, 5) for watch in watches)
        for watch in watches:
            watch.clear()
            assert not is_readable(watch.fd, 0)
        watches[0].close()
        write(state)
        wait_readable(watches[1].fd)
        watches[1].close()
        assert state.query("SELECT * FROM follower") == []
        assert os.listdir(state.path("waiters")) == []

    @pytest.mark.parametrize("seen", [None, True])
    def test_whether_anybody_follows_need_not_be_read_by_who_has_seen_that(
        self, state: State, seen: bool | None
    ) -> None:
        watch = StateEventLog(state).watch()
        write(state)  # the first of all is one of those after which is looked in any case
        for _ in range(2):
            watch.clear()
            with state.transaction():
                state.events.is_followed = seen
                state.events.add(1.0, "queued", "T")
            assert is_readable(watch.fd, 0)
            assert state.events.is_followed is None, "that was of one transaction"
        assert watch.clear() == 0, "it doesn't say which are new"
        watch.close()

    def test_who_can_not_be_noted_has_no_pipe(self, state: State) -> None:
        state.db.execute(
            "CREATE TRIGGER none BEFORE INSERT ON follower BEGIN SELECT RAISE(FAIL, 'no'); END"
        )
        with leaving_open(0), pytest.raises(LeaseError):
            StateEventLog(state).watch()
        assert os.listdir(state.path("waiters")) == []

    @pytest.mark.parametrize("who", ["the next who writes", "the next who follows"])
    def test_what_a_killed_one_leaves_is_taken_away(self, state: State, who: str) -> None:
        def follow() -> None:
            StateEventLog(State.open(state.directory)).watch()
            signal.pause()

        pid = fork(follow)
        eventually(lambda: state.query("SELECT * FROM follower"))
        tidy(state)
        assert len(os.listdir(state.path("waiters"))) == 1, "it is read"
        os.kill(pid, signal.SIGKILL)
        ending(pid)
        if who == "the next who writes":
            write(state)
            tidy(state)
        else:
            StateEventLog(state).watch().close()
        assert state.query("SELECT * FROM follower") == []
        assert os.listdir(state.path("waiters")) == []

    def test_who_comes_too_late_for_some_is_told_how_many_and_until_when(
        self, state: State
    ) -> None:
        state.events.kept_number = 100
        log = StateEventLog(state)
        missed: list[Missed] = []
        write(state, 50)
        for n in range(10):
            write(state, 64, at=2000.0 + n)
        found = [each.number for each in log.read(after=50, missed=missed.append)]
        (gone,) = missed
        assert gone == Missed(found[0] - 51, 2000.0 + (found[0] - 51) // 64, found[0] - 1)
        for reads_on in (found[0] - 1, found[0], found[-1]):
            list(log.read(after=reads_on, missed=missed.append))
        assert len(missed) == 1, "those before it were read"
        # Whoever wants none of what is left is told as well, also of a single one.
        for number in (2, 1):
            after = found[0] - number - 1
            list(log.read(EventFilter(type="none"), after=after, missed=missed.append))
            assert missed.pop() == gone._replace(number=number)

    def test_each_event_is_seen_once_and_in_order_while_others_write_and_trim(
        self, state: State
    ) -> None:
        def work() -> None:
            own = State.open(state.directory)
            own.events.kept_number = 1000  # so far behind is who is woken on a busy machine only
            for _ in range(500):
                write(own)

        log = StateEventLog(state)
        watch = log.watch()
        writers = [fork(work) for _ in range(3)]
        told: list[int] = []  # of what was seen, and of what was gone before that

        def note_gone(gone: Missed) -> None:
            told.extend(range(after + 1, gone.last_number + 1))

        after = 0
        while after < 1500:
            wait_readable(watch.fd, what=f"events after {after}")
            watch.clear()
            found = log.read(EventFilter(type="T"), after=after, missed=note_gone)
            told += [each.number for each in found]
            after = told[-1]
        assert told == list(range(1, 1501))
        for pid in writers:
            assert ending(pid) == 0
        assert len(numbers(state)) < 1200, "there was something to trim"
        watch.close()
