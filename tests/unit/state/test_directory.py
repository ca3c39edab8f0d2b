"""leasectl.state.directory"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import sqlite3
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.errors import CorruptState, Interrupted, LeaseError, StateUnwritable
from leasectl.state import names_files
from leasectl.state.database import check_directory
from leasectl.state.directory import State
from leasectl.state.named_pipe import NamedPipe
from leasectl.state.rows import insert
from leasectl.system.lock_wait import LockLimit, flock_exclusive
from tests.kit.descriptors import leaving_open
from tests.kit.forking import ending, fork
from tests.kit.killing import kill_this_process
from tests.kit.waits import eventually


def set_cursor(state: State, value: str) -> None:
    """A change of the database that tests can see."""
    state.db.execute("UPDATE meta SET purge_cursor = ?", (value,))


def cursor(state: State) -> str:
    return str(state.query("SELECT purge_cursor FROM meta")[0][0])


def record(state: State, handle_id: str, *names: str) -> None:
    """Put the least of a record that a names file can be made of."""
    state.db.execute(
        "INSERT OR IGNORE INTO handle (id, backend, type, count, scope, labels, owner, "
        "holder_identity, state, acquisition, lost, settings, lost_replies, cancelled, watched) "
        "VALUES (?, 'local:', 'T', 1, 'step', '', 'o', 'i', 'held', 1, 0, '', 0, 0, 0)",
        (handle_id,),
    )
    state.db.execute("DELETE FROM lease WHERE handle = ?", (handle_id,))
    for fence, name in enumerate(names):
        state.db.execute(
            "INSERT INTO lease VALUES (?, ?, ?, 1, 1, 1, 0, 0, 0)", (handle_id, name, fence)
        )
    state.stage_names(handle_id, names)


def names_file(state: State, handle_id: str = "h") -> str:
    return Path(state.names_path(handle_id)).read_text()


def handle_files(state: State) -> list[str]:
    return sorted(os.listdir(state.path("handles")))


def hung_up(pipe: NamedPipe, timeout_ms: int = 0) -> bool:
    poll = select.poll()
    poll.register(pipe.fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def after_unlocking(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Have something happen right after the lock of a transaction was let go."""
    flock = fcntl.flock

    def flock_and_then(fd: int, operation: int) -> None:
        flock(fd, operation)
        if operation == fcntl.LOCK_UN:
            then()

    monkeypatch.setattr(fcntl, "flock", flock_and_then)


class TestTransaction:
    def test_an_error_undoes_it(self, state: State) -> None:
        with pytest.raises(ZeroDivisionError), state.transaction():
            set_cursor(state, "x")
            record(state, "h", "T--00")
            raise ZeroDivisionError
        assert cursor(state) == ""
        assert handle_files(state) == []

    def test_writers_wait_for_each_other_in_the_kernel(self, state: State) -> None:
        go_read, go_write = os.pipe()

        def write() -> None:
            os.close(go_write)
            os.read(go_read, 1)
            with contextlib.closing(State.open(state.directory)) as other, other.transaction():
                set_cursor(other, cursor(other) + "x")

        children = [fork(write) for _ in range(5)]
        with state.transaction():
            os.close(go_write)
            eventually(lambda: waiting_for_locks() >= set(children))
            set_cursor(state, "y")
        assert [ending(child) for child in children] == [0] * 5
        assert cursor(state) == "yxxxxx"

    def test_who_gets_no_lock_in_time_has_no_transaction_and_gets_one_later(
        self, state: State
    ) -> None:
        other = os.open(state.path("state.lock"), os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        limit = state.lock_limit.within(0.05)
        with pytest.raises(LeaseError, match=r"state\.lock"), limit, state.transaction():
            pytest.fail("it has the lock that another holds")
        assert not state.is_changing
        os.close(other)
        with state.transaction():
            set_cursor(state, "later")
        assert cursor(state) == "later"

    def test_who_can_not_begin_for_others_in_the_database_lets_go_of_the_lock(
        self, state: State
    ) -> None:
        state.db.execute("PRAGMA busy_timeout = 0")
        with contextlib.closing(sqlite3.connect(state.path("state.db"))) as other:
            other.execute("BEGIN IMMEDIATE")  # without the lock, as no version does
            with pytest.raises(LeaseError, match=r"busy .*try again"), state.transaction():
                pytest.fail("two change it at once")
        assert not state.is_changing
        with (
            contextlib.closing(State.open(state.directory)) as another,
            another.lock_limit.within(1),
            another.transaction(),
        ):
            set_cursor(another, "x")
        assert cursor(state) == "x"

    def test_who_opens_it_does_not_wait_for_a_writer(self, state: State) -> None:
        limit = LockLimit()
        with state.transaction(), limit.within(1):
            set_cursor(state, "x")
            with contextlib.closing(State.open(state.directory, lock_limit=limit)) as other:
                assert cursor(other) == ""

    @pytest.mark.parametrize("fails", [False, True])
    def test_who_is_woken_is_woken_though_another_has_the_lock_by_then(
        self, state: State, monkeypatch: pytest.MonkeyPatch, fails: bool
    ) -> None:
        pipe = NamedPipe(state.waiter_pipe("w"))
        other = os.open(state.path("state.lock"), os.O_RDWR)

        def goes_on() -> None:
            assert not hung_up(pipe)
            fcntl.flock(other, fcntl.LOCK_EX)

        after_unlocking(monkeypatch, goes_on)
        with contextlib.suppress(ZeroDivisionError), state.transaction():
            state.wake(pipe.path)
            if fails:
                raise ZeroDivisionError
        assert hung_up(pipe)
        assert not state.is_changing
        os.close(other)
        pipe.close()

    def test_a_signal_that_raises_as_the_lock_goes_leaves_nothing_undone(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipes = [NamedPipe(state.waiter_pipe(name)) for name in "abc"]

        def raises() -> None:
            raise Interrupted(signal.SIGTERM)

        with monkeypatch.context() as patched, pytest.raises(Interrupted):
            after_unlocking(patched, raises)
            with state.transaction():
                set_cursor(state, "x")
                record(state, "h", "T--00")
                for pipe in pipes:
                    state.wake(pipe.path)
        assert all(map(hung_up, pipes))
        with state.transaction():  # one of its own, in which nothing is staged any more
            state.db.execute("DELETE FROM lease")
        assert cursor(state) == "x"
        assert names_file(state) == "T--00"
        for pipe in pipes:
            pipe.close()

    def test_what_another_has_changed_is_seen_by_the_version_of_the_data(
        self, state: State
    ) -> None:
        before = state.data_version()
        with state.transaction():
            set_cursor(state, "own")
        assert state.data_version() == before
        with contextlib.closing(State.open(state.directory)) as other, other.transaction():
            set_cursor(other, "another's")
        assert state.data_version() != before


class TestNamesFiles:
    def test_a_reader_never_sees_half_a_list(self, state: State) -> None:
        """A file that is replaced is another file; whoever has the old one open reads that."""
        with state.transaction():
            record(state, "h", "a", "b")
        with open(state.names_path("h")) as old:
            with state.transaction():
                record(state, "h", "c")
            assert old.read() == "a\nb"
        assert names_file(state) == "c"

    @pytest.mark.parametrize("before", [("a",), ("a", "b"), ()])
    @pytest.mark.parametrize("after", [("c",), (), ("c", "d", "e"), None])
    @pytest.mark.parametrize("function", ["write", "commit", "rename", "unlink"])
    def test_a_writer_killed_before_a_file_is_in_place_is_made_up_for(
        self,
        state: State,
        before: tuple[str, ...],
        after: tuple[str, ...] | None,
        function: str,
    ) -> None:
        with state.transaction():
            record(state, "h", *before)

        def die_half_way() -> None:
            with contextlib.closing(State.open(state.directory)) as other, other.transaction():
                if after is None:
                    other.db.execute("DELETE FROM handle")
                    other.db.execute("DELETE FROM lease")
                    other.stage_names("h", None)
                else:
                    record(other, "h", *after)
                kill_at(other, function)

        killed = ending(fork(die_half_way)) == -signal.SIGKILL
        with state.transaction():
            pass  # whoever comes next mends it
        recorded = recorded_names(state)
        assert recorded == after or (killed and recorded == before)
        assert handle_files(state) == ([] if recorded is None else ["h"])
        assert recorded is None or names_file(state) == "\n".join(recorded)

    def test_more_files_than_the_note_has_room_for_are_made_up_for(self, state: State) -> None:
        ids = [f"{'x' * 190}-{number:03d}" for number in range(200)]

        def die_half_way() -> None:
            with contextlib.closing(State.open(state.directory)) as other, other.transaction():
                for handle_id in ids:
                    record(other, handle_id, "b")
                kill_at(other, "rename")

        with state.transaction():
            for handle_id in ids:
                record(state, handle_id, "a")
        assert ending(fork(die_half_way)) == -signal.SIGKILL
        with state.transaction():
            pass
        assert {names_file(state, handle_id) for handle_id in ids} == {"b"}


class TestAFullDisk:
    def test_what_does_not_fit_changes_nothing(self, state: State) -> None:
        with state.transaction():
            record(state, "h", "a")
        before = (cursor(state), handle_files(state), names_file(state))

        def write_too_much() -> None:
            other = State.open(state.directory)
            with contextlib.closing(other):
                limit_file_size(other)
                with (
                    pytest.raises(StateUnwritable, match="LEASECTL_STATE_DIR"),
                    other.transaction(),
                ):
                    set_cursor(other, "x" * 50_000)
                    record(other, "h", "b")
                    record(other, "h2", "c")
                assert (cursor(other), handle_files(other), names_file(other)) == before

        assert ending(fork(write_too_much)) == 0
        assert (cursor(state), handle_files(state), names_file(state)) == before

    def test_when_there_is_room_again_it_goes_on(self, state: State) -> None:
        def try_twice() -> None:
            with contextlib.closing(State.open(state.directory)) as other:
                limits = limit_file_size(other)
                with pytest.raises(StateUnwritable), other.transaction():
                    set_cursor(other, "x" * 50_000)
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                with other.transaction():
                    set_cursor(other, "y")

        assert ending(fork(try_twice)) == 0
        assert cursor(state) == "y"

    def test_a_disk_that_stays_full_does_not_stop_what_needs_no_room(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with state.transaction():
            record(state, "h", "a", "b")

        def no_space(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(names_files, "write_new", no_space)
        with pytest.raises(StateUnwritable), state.transaction():
            record(state, "h", "b")
        with state.transaction():
            set_cursor(state, "x")
        assert cursor(state) == "x"
        assert names_file(state) == "a\nb"


class TestWakeUps:
    def test_many_for_one_take_one_descriptor(self, state: State) -> None:
        pipe = NamedPipe(state.path("waiters", "one"))
        with state.transaction(), leaving_open(1):
            assert all(state.wake(pipe.path) for _ in range(9))
        with state.transaction():
            assert state.wake(pipe.path)
        pipe.close()

    def test_a_wake_up_comes_also_when_the_transaction_failed(self, state: State) -> None:
        """One too many does no harm."""
        pipe = NamedPipe(state.path("waiters", "w"))
        with pytest.raises(ZeroDivisionError), state.transaction():
            state.wake(pipe.path)
            raise ZeroDivisionError
        assert hung_up(pipe)
        pipe.close()

    def test_a_wake_up_comes_also_when_the_waker_is_killed_right_after_its_commit(
        self, state: State
    ) -> None:
        pipe = NamedPipe(state.path("waiters", "w"))

        def die_after_commit() -> None:
            other = State.open(state.directory)
            with other.transaction():
                set_cursor(other, "x")
                other.wake(pipe.path)
                kill_at(other, "unlock")

        assert ending(fork(die_after_commit)) == -signal.SIGKILL
        assert cursor(state) == "x"
        assert hung_up(pipe, 1000)
        pipe.close()

    def test_what_can_be_no_pipe_is_no_reason_to_go_on(self, state: State) -> None:
        with pytest.raises((OSError, StateUnwritable), match="directory"), state.transaction():
            set_cursor(state, "x")
            state.wake(state.directory)
        assert cursor(state) == ""

    def test_what_is_to_be_closed_is_closed_when_it_is_over(self, state: State) -> None:
        first, second = os.pipe(), os.pipe()
        with state.transaction():
            state.close_afterwards(first[1])
            os.fstat(first[1])
        assert os.read(first[0], 1) == b""
        state.close_afterwards(second[1])  # which is before the next
        os.fstat(second[1])
        with pytest.raises(ZeroDivisionError), state.transaction():
            raise ZeroDivisionError
        assert os.read(second[0], 1) == b""
        os.close(first[0])
        os.close(second[0])

    def test_no_descriptor_is_left_open(self, state: State) -> None:
        pipe = NamedPipe(state.path("waiters", "w"))
        with leaving_open(0):
            for _ in range(3):
                with state.transaction():
                    state.wake(pipe.path)
        pipe.close()


class TestTheDirectory:
    def test_it_is_made_for_its_owner_alone(self, state_dir: Path) -> None:
        before = os.umask(0)
        try:
            State.open(str(state_dir)).close()
        finally:
            os.umask(before)
        assert os.stat(state_dir).st_mode & 0o777 == 0o700
        for folder, _, files in os.walk(state_dir):
            assert os.stat(folder).st_mode & 0o077 == 0
            for file in files:
                assert os.stat(os.path.join(folder, file)).st_mode & 0o077 == 0, file

    def test_many_may_make_it_at_once(self, state_dir: Path) -> None:
        def make() -> None:
            State.open(str(state_dir)).close()

        children = [fork(make) for _ in range(12)]
        assert [ending(child) for child in children] == [0] * 12

    def test_a_maker_that_is_killed_half_way_is_made_up_for(self, state_dir: Path) -> None:
        def die() -> None:
            vars(os)["rename"] = kill_this_process
            State.open(str(state_dir))

        assert ending(fork(die)) == -signal.SIGKILL
        assert not (state_dir / "state.db").exists()
        State.open(str(state_dir)).close()

    @pytest.mark.parametrize("mode", [0o777, 0o755, 0o710, 0o701])
    def test_one_open_to_others_is_refused(self, state_dir: Path, mode: int) -> None:
        state_dir.mkdir()
        state_dir.chmod(mode)
        with pytest.raises(StateUnwritable, match=f"mode {mode:04o}.*chmod 700 {state_dir}"):
            State.open(str(state_dir))
        assert list(state_dir.iterdir()) == []

    def test_a_path_of_two_lines_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StateUnwritable, match="line break"):
            State.open(str(tmp_path / "a\nb"))
        assert list(tmp_path.iterdir()) == []

    def test_a_symbolic_link_is_refused(self, state_dir: Path, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir(mode=0o700)
        state_dir.symlink_to(tmp_path / "real")
        with pytest.raises(StateUnwritable, match="symbolic link"):
            State.open(str(state_dir))
        assert list((tmp_path / "real").iterdir()) == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
    def test_somebody_elses_is_refused(self, state_dir: Path) -> None:
        state_dir.mkdir(mode=0o700)
        os.chown(state_dir, 12345, -1)
        with pytest.raises(StateUnwritable, match="belongs to user 12345; choose another"):
            State.open(str(state_dir))

    @pytest.mark.parametrize("is_there", [True, False])
    @pytest.mark.parametrize(("mode", "is_refused"), [(0o777, True), (0o1777, False)])
    def test_one_that_any_user_could_replace_is_refused(
        self, tmp_path: Path, is_there: bool, mode: int, is_refused: bool
    ) -> None:
        parent = tmp_path / "open to all"
        parent.mkdir()
        if is_there:
            State.open(str(parent / "state")).close()
        parent.chmod(mode)
        if not is_refused:
            State.open(str(parent / "state")).close()
            return
        with pytest.raises(
            StateUnwritable, match=r"\(mode 0777\); run: chmod \+t '.*/open to all'"
        ):
            State.open(str(parent / "state"))
        assert (parent / "state").exists() == is_there

    @pytest.mark.parametrize("when", ["before SQLite opens it", "before its log is opened"])
    def test_one_that_is_replaced_after_its_check_is_not_used(
        self, state_dir: Path, monkeypatch: pytest.MonkeyPatch, when: str
    ) -> None:
        """As by another user who can rename a folder above it, with a database of his own."""
        theirs = state_dir.with_name("theirs")

        def keep_logs() -> None:
            kept = [State.open(str(each)) for each in (state_dir, theirs)]
            Path(f"{theirs}.kept").touch()
            signal.pause()
            del kept

        keeping = fork(keep_logs)
        eventually(Path(f"{theirs}.kept").exists)
        connect = sqlite3.connect

        def swap() -> None:
            os.rename(state_dir, state_dir.with_name("mine"))
            os.rename(theirs, state_dir)

        def swap_and_connect(*given: Any, **more: Any) -> Any:
            if when == "before SQLite opens it":
                swap()
                return connect(*given, **more)
            db = connect(*given, **more)
            swap()
            return db

        monkeypatch.setattr(sqlite3, "connect", swap_and_connect)
        try:
            with pytest.raises(StateUnwritable, match=r"was replaced while it was opened"):
                State.open(str(state_dir))
        finally:
            os.kill(keeping, signal.SIGKILL)
            ending(keeping)

    def test_a_lock_that_is_a_fifo_is_refused(self, state_dir: Path) -> None:
        State.open(str(state_dir)).close()
        (state_dir / "state.lock").unlink()
        os.mkfifo(state_dir / "state.lock")
        with pytest.raises(StateUnwritable, match=r"/state\.lock: not a regular file"):
            State.open(str(state_dir))

    def test_a_database_that_is_a_link_is_refused(self, state_dir: Path, tmp_path: Path) -> None:
        State.open(str(state_dir)).close()
        os.rename(state_dir / "state.db", tmp_path / "elsewhere.db")
        os.symlink(tmp_path / "elsewhere.db", state_dir / "state.db")
        with pytest.raises(StateUnwritable, match=r"/state\.db is not a regular file of user"):
            State.open(str(state_dir))

    def test_a_lock_that_was_cut_short_keeps_its_note(self, state_dir: Path) -> None:
        with contextlib.closing(State.open(str(state_dir))) as state, state.transaction():
            record(state, "T-abcdef", "a")
        names = Path(state.names_path("T-abcdef"))
        names.unlink()
        (state_dir / "state.lock").write_bytes(b"+T-abcdef\0")
        with contextlib.closing(State.open(str(state_dir))) as state, state.transaction():
            pass
        assert names.read_text() == "a"

    def test_one_that_need_not_be_made_has_to_be_there(self, state_dir: Path) -> None:
        with pytest.raises(StateUnwritable, match="does not exist"):
            check_directory(str(state_dir))
        assert not state_dir.exists()

    @pytest.mark.parametrize("before", [None, 0, 100], ids=["new", "empty", "shorter"])
    def test_the_lock_has_all_its_room_before_a_disk_is_full(
        self, state_dir: Path, before: int | None
    ) -> None:
        State.open(str(state_dir)).close()
        lock = state_dir / "state.lock"
        whole = lock.stat().st_size
        assert whole == 8192
        lock.unlink()
        if before is not None:
            lock.touch(mode=0o600)
            os.truncate(lock, before)
        State.open(str(state_dir)).close()
        assert lock.stat().st_size == whole

    def test_what_another_has_noted_in_a_lock_that_it_was_faster_to_make_stays(
        self, state_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        State.open(str(state_dir)).close()
        lock = state_dir / "state.lock"
        made = b"\0" + b"as another made it".ljust(8191, b".")
        lock.write_bytes(b"")

        def wait_for_another(fd: int, limit: LockLimit) -> None:
            flock_exclusive(fd, limit)
            lock.write_bytes(made)

        with monkeypatch.context() as patched:
            patched.setattr("leasectl.state.database.flock_exclusive", wait_for_another)
            State.open(str(state_dir)).close()
        assert lock.read_bytes() == made

    def test_one_that_can_not_be_opened_leaves_no_descriptor_open(
        self, state_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        State.open(str(state_dir)).close()
        (state_dir / "state.db").write_bytes(b"")
        with leaving_open(0), pytest.raises(CorruptState):
            State.open(str(state_dir))
        (state_dir / "state.lock").write_bytes(b"")

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no space left")

        monkeypatch.setattr(os, "pwrite", full)
        with leaving_open(0), pytest.raises(StateUnwritable):
            State.open(str(state_dir))

    def test_closing_it_leaves_nothing_open_and_tells_who_wants_to_know(
        self, state_dir: Path
    ) -> None:
        with leaving_open(0):
            state = State.open(str(state_dir))
            told: list[str] = []
            state.on_close += [lambda: told.append("first"), lambda: told.append("second")]
            state.close()
        assert told == ["first", "second"]
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            state.db.execute("SELECT 1")

    @pytest.mark.parametrize("missing", ["state.lock", "state.db"])
    def test_whoever_has_made_what_was_missing_holds_nobody_up(
        self, state_dir: Path, missing: str
    ) -> None:
        State.open(str(state_dir)).close()
        (state_dir / missing).unlink()
        with contextlib.closing(State.open(str(state_dir))):
            other = os.open(state_dir / "state.lock", os.O_RDWR)
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(other)


class TestAReboot:
    def test_it_is_noted_once(self, state: State) -> None:
        ((boot,),) = state.query("SELECT boot_id FROM meta")
        with state.transaction() as db:
            db.execute("UPDATE meta SET boot_id = 'an earlier one'")
        State.open(state.directory).close()
        assert [tuple(row) for row in state.query("SELECT boot_id FROM meta")] == [(boot,)]
        with state.transaction() as db:
            db.execute("INSERT INTO timer VALUES ('h', '', 1, 1e9)")
        State.open(state.directory).close()
        assert [tuple(row) for row in state.query("SELECT due FROM timer")] == [(1e9,)]

    @pytest.mark.parametrize("to_show", [False, True])
    def test_who_only_shows_need_not_note_it(
        self, state: State, monkeypatch: pytest.MonkeyPatch, to_show: bool
    ) -> None:
        with state.transaction() as db:
            db.execute("UPDATE meta SET boot_id = 'an earlier one'")

        def no_space(*_: object) -> None:
            raise StateUnwritable("no space")

        def open_locks() -> int:
            links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
            return sum(os.path.realpath(link).endswith("/state.lock") for link in links)

        monkeypatch.setattr(State, "_note_boot", no_space)
        before = open_locks()
        with contextlib.ExitStack() as ends:
            if not to_show:
                ends.enter_context(pytest.raises(StateUnwritable, match="no space"))
            State.open(state.directory, to_show=to_show).close()
        assert open_locks() == before

    def test_all_that_was_due_at_some_uptime_is_due_at_once(self, state: State) -> None:
        with state.transaction() as db:
            record(state, "h", "a")
            db.execute("INSERT INTO timer VALUES ('h', '', 1, 1e9)")
            db.execute("UPDATE handle SET released_at = 1e9")
            db.execute("UPDATE meta SET boot_id = 'an earlier one'")
        State.open(state.directory).close()
        assert [tuple(row) for row in state.query("SELECT due FROM timer")] == [(0.0,)]
        assert [tuple(row) for row in state.query("SELECT released_at FROM handle")] == [(0.0,)]

    def test_nothing_is_measured_from_a_time_before_it(self, state: State) -> None:
        member = {"name": "a", "by_default": 0, "cordoned": 0, "leaves": 0, "joined": 0}
        setting = {"type": "T", "pace_seconds": 1.0, "burst": 1, "aging_seconds": 0.0}
        ranked = {"type": "T", "number": 1, "priority": 0, "queued_at": 1e9}
        mark = {"handle": "h", "acquisition": 1, "name": "a", "id": "x", "asked_by": "ops"}
        use = {"handle": "h", "acquisition": 1}
        with state.transaction() as db:
            record(state, "h", "a")
            record(state, "other", "b")
            db.execute("UPDATE handle SET queued_at = 1e9, granted_at = 1e9 WHERE id = 'h'")
            resource = {"type": "T", "fence": 0, "lease_transitions": 0, "labels": ""}
            insert(db, "resource", {"name": "a", **resource, "expires_at": 1e9})
            insert(db, "resource", {"name": "b", **resource})
            insert(db, "pool_setting", {**setting, "paid_until": 1e9})
            insert(db, "ranked_ticket", ranked)
            insert(db, "member", {**member, "ends_at": 1e9, "properties": "{}"})
            held_back = {**member, "name": "b", "held_back_until": 1e9, "properties": "{}"}
            insert(db, "member", held_back)
            insert(db, "mark_seen", {**mark, "ends_at": 1e9, "is_ready": 0})
            insert(db, "name_in_use", {**use, "name": "a", "until": 1e9})
            insert(db, "name_in_use", {**use, "name": "b"})
            db.execute("UPDATE meta SET boot_id = 'an earlier one'")
        State.open(state.directory).close()

        def found(what: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in state.query(f"SELECT {what}")]

        assert found("queued_at, granted_at FROM handle") == [(None, None)] * 2
        assert found("name, expires_at FROM resource ORDER BY name") == [("a", 0.0), ("b", None)]
        assert found("paid_until FROM pool_setting") == [(0.0,)]
        assert found("* FROM ranked_ticket") == []
        ends = found("name, ends_at, held_back_until FROM member ORDER BY name")
        assert ends == [("a", 0.0, None), ("b", None, 0.0)]
        assert found("ends_at FROM mark_seen") == [(0.0,)]
        # What was in use when it went down is so until somebody says otherwise.
        assert found("name, until FROM name_in_use ORDER BY name") == [("a", 0.0), ("b", None)]


def test_the_log_is_emptied_seldom_by_who_writes_often_and_soon_by_others(state: State) -> None:
    def write(writer: State, transactions: int) -> None:
        for _ in range(transactions):
            with writer.transaction() as db:
                for number in range(200):  # each a page
                    db.execute("REPLACE INTO note VALUES (?, 1, ?)", (str(number), "x" * 1000))

    def frames() -> float:
        """How long the log has become; what is in it now may be less."""
        return os.path.getsize(state.path("state.db-wal")) / 1048

    write(state, 14)
    assert 1000 < frames() < 1500
    write(state, 50)
    assert 3000 < frames() < 3500
    with contextlib.closing(State.open(state.directory)) as other:
        write(other, 2)  # the first empties it, the next begins it anew
        ((_, now_in_it, _),) = other.query("PRAGMA wal_checkpoint(PASSIVE)")
    assert now_in_it < 500


def test_a_database_that_turns_bad_while_it_is_open_is_reported(state: State) -> None:
    with pytest.raises(CorruptState, match="damaged"):
        state.query("SELECT * FROM no_such_table")


def recorded_names(state: State) -> tuple[str, ...] | None:
    if not state.query("SELECT 1 FROM handle WHERE id = 'h'"):
        return None
    return tuple(name for (name,) in state.query("SELECT name FROM lease ORDER BY fence"))


def waiting_for_locks() -> set[int]:
    """The pids of those that sleep in flock(2)."""
    lines = Path("/proc/locks").read_text().splitlines()
    return {int(line.split()[5]) for line in lines if "-> FLOCK" in line}


def limit_file_size(state: State) -> tuple[int, int]:
    """Let no file of this process grow, as on a full disk; returns the limits of before."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with state.transaction():
        set_cursor(state, "-")  # now the log is longer than the lock file
        set_cursor(state, "")
    size = max(os.path.getsize(state.path("state.db-wal")), 8192)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    return limits


def kill_at(state: State, function: str) -> None:
    """Have this process killed when the transaction gets to some point."""

    def die_at_commit(sql: str) -> None:
        if sql.startswith("COMMIT"):
            kill_this_process()

    replacements: dict[str, Callable[[], Any]] = {
        "commit": lambda: state.db.set_trace_callback(die_at_commit),
        "rename": lambda: setattr(os, "rename", kill_this_process),
        "write": lambda: setattr(names_files, "write_new", kill_this_process),
        "unlink": lambda: setattr(os, "unlink", kill_this_process),
        "unlock": lambda: setattr(fcntl, "flock", kill_this_process),
    }
    replacements[function]()


def test_sqlite_is_new_enough_for_what_is_used() -> None:
    assert sqlite3.sqlite_version_info >= (3, 24)
