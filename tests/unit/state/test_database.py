"""leasectl.state.database: damaged, incomplete or unsound databases."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import CorruptState, LeaseError, StateUnwritable
from leasectl.leases.acquire import acquire
from leasectl.leases.delay import announce
from leasectl.leases.release import finish
from leasectl.model import Request
from leasectl.state import database, fences
from leasectl.state.database import (
    EARLIER_APPLICATION_ID,
    FORMAT,
    connect,
    connect_to_show,
    errors_of,
    open_directory,
)
from leasectl.state.directory import State
from leasectl.state.reads import Soundness, check_readable, examine
from tests.kit.forking import ending, fork
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.support import Cli


@pytest.fixture
def path(cli: Cli) -> Path:
    """A database that no process has open, with a pool in it, and its log written back."""
    cli.pool("T", *(f"T--{number:03d}" for number in range(300)))
    path = cli.state_dir / "state.db"
    assert not path.with_name("state.db-wal").exists()
    return path


def pragma(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA {statement}")


def become_foreign(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE pool (x)")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: os.truncate(path, 0), "is empty"),
    "garbage": (lambda path: path.write_bytes(os.urandom(9000)), "is damaged"),
    "one byte": (lambda path: path.write_bytes(b"S"), "is damaged|not a leasectl database"),
    "text": (lambda path: path.write_text("hello\n" * 1000), "is damaged"),
    "cut in the header": (lambda path: os.truncate(path, 50), "is not a leasectl"),
    "another program's": (become_foreign, "is not a leasectl database"),
    "without our mark": (lambda path: pragma(path, "application_id = 7"), "is not a leasectl"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_reported_and_left_alone(path: Path, damage: str) -> None:
    do, what = DAMAGES[damage]
    do(path)
    before = path.read_bytes()
    with pytest.raises(CorruptState, match=what) as reported:
        State.open(str(path.parent))
    assert str(path) in str(reported.value)
    assert f"mv {path.parent} {path.parent}.damaged" in str(reported.value)
    assert path.read_bytes() == before


def test_a_database_from_before_format_1_is_not_touched(path: Path) -> None:
    pragma(path, f"application_id = {EARLIER_APPLICATION_ID}")
    pragma(path, "user_version = 10")
    before = path.read_bytes()
    with pytest.raises(CorruptState, match=r"before format 1.*mv ") as reported:
        State.open(str(path.parent))
    assert "\n" not in str(reported.value)
    assert path.read_bytes() == before


def test_a_database_of_a_newer_version_is_not_touched(path: Path) -> None:
    pragma(path, f"user_version = {FORMAT + 1}")
    before = path.read_bytes()
    with pytest.raises(CorruptState, match="newer version of leasectl") as reported:
        State.open(str(path.parent))
    assert "mv " not in str(reported.value)  # nothing is wrong with it
    assert path.read_bytes() == before


@pytest.fixture
def dir_fd(state_dir: Path) -> Iterator[int]:
    """The state directory, as who has checked it has it open."""
    fd = open_directory(str(state_dir), create=True)
    yield fd
    os.close(fd)


def test_one_that_is_refused_is_not_held_open(path: Path, dir_fd: int) -> None:
    pragma(path, "application_id = 7")
    before = os.listdir("/proc/self/fd")
    # Whoever catches the error has all that led to it, and so the connection, unless it is closed.
    with pytest.raises(CorruptState) as reported:
        connect(str(path), dir_fd=dir_fd)
    assert os.listdir("/proc/self/fd") == before
    assert reported.value.__traceback__ is not None


def test_opening_one_does_not_wait_for_who_writes(state_dir: Path, dir_fd: int) -> None:
    with contextlib.closing(State.open(str(state_dir))) as writer, writer.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = 'x'")
        with contextlib.closing(connect(writer.path("state.db"), dir_fd=dir_fd)) as other:
            assert [*other.execute("SELECT purge_cursor FROM meta").fetchone()] == [""]


@pytest.mark.parametrize("sixteenths", range(1, 16))
def test_a_database_that_was_cut_is_reported_as_damaged(
    path: Path, cli: Cli, sixteenths: int
) -> None:
    size = path.stat().st_size
    os.truncate(path, size * sixteenths // 16)
    with (
        pytest.raises(CorruptState, match=r"is damaged|is not a leasectl"),
        cli.service() as opened,
    ):
        opened.pools.pools()


def test_a_log_without_its_database_is_not_taken_for_a_fresh_start(path: Path) -> None:
    with contextlib.closing(State.open(str(path.parent))) as state, state.transaction() as db:
        db.execute("UPDATE meta SET fence = 7")
        log = path.with_name("state.db-wal")
        assert log.exists()
        kept = log.read_bytes()
    path.unlink()
    log.write_bytes(kept)
    with pytest.raises(CorruptState, match=r"^\S*/state\.db is missing, but its log is there"):
        State.open(str(path.parent))
    assert not path.exists()
    assert log.read_bytes() == kept


def test_a_database_that_is_a_folder_is_reported(path: Path) -> None:
    path.unlink()
    path.mkdir()
    with pytest.raises(LeaseError):
        State.open(str(path.parent))
    assert path.is_dir()


def test_one_is_shown_although_sqlite_can_not_make_what_all_share(
    path: Path, dir_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def on_a_full_disk(path: str, *, dir_fd: int, alone: bool = False) -> sqlite3.Connection:
        asked.append(alone)
        if not alone:
            raise sqlite3.OperationalError("disk I/O error")
        return connect(path, dir_fd=dir_fd, alone=True)

    monkeypatch.setattr(database, "connect", on_a_full_disk)
    with contextlib.closing(connect_to_show(str(path), dir_fd=dir_fd)) as shown:
        assert [*shown.execute("SELECT count(*) FROM resource").fetchone()] == [300]
        assert not path.with_name("state.db-shm").exists()
        with (
            contextlib.closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("SELECT * FROM pool")
    assert asked == [False, True]


def test_a_half_made_database_is_made_again(state_dir: Path) -> None:
    state_dir.mkdir(mode=0o700)
    (state_dir / "state.db.new").write_bytes(b"half")
    State.open(str(state_dir)).close()
    assert not (state_dir / "state.db.new").exists()


def test_a_database_survives_being_opened_again(path: Path, cli: Cli) -> None:
    for _ in range(2):
        with cli.service() as service:
            assert service.pools.pools("T")[0].capacity == 300


def test_a_log_that_was_not_written_back_is_not_lost(cli: Cli) -> None:
    """As after KILL of every process that had it open."""
    cli.pool("T")
    with cli.service() as service, service.state.transaction() as db:
        db.execute("UPDATE meta SET fence = 41")
    with cli.service() as service, service.state.transaction():
        copies = {
            name: (cli.state_dir / name).read_bytes() for name in ("state.db", "state.db-wal")
        }
    for name, content in copies.items():
        (cli.state_dir / name).write_bytes(content)
    (cli.state_dir / "state.db-shm").unlink(missing_ok=True)
    assert cli.query("SELECT fence FROM meta") == [(41,)]


@pytest.mark.parametrize(
    ("raised", "becomes", "says"),
    [
        (OSError(28, "No space left on device"), StateUnwritable, "No space left"),
        (OSError(30, "Read-only file system"), StateUnwritable, "Read-only"),
        (OSError(27, "File too large"), StateUnwritable, "too large"),
        (sqlite3.OperationalError("database or disk is full"), StateUnwritable, "disk is full"),
        (sqlite3.OperationalError("disk I/O error"), StateUnwritable, "I/O"),
        (
            sqlite3.OperationalError("attempt to write a readonly database"),
            StateUnwritable,
            "readonly",
        ),
        (sqlite3.OperationalError("database is locked"), LeaseError, "try again"),
        (sqlite3.DatabaseError("database disk image is malformed"), CorruptState, "damaged"),
        (sqlite3.DatabaseError("file is not a database"), CorruptState, "damaged"),
        (sqlite3.OperationalError("no such table: meta"), CorruptState, "damaged"),
    ],
    ids=str,
)
def test_errors_of_others_become_ours_at_one_edge(
    raised: Exception, becomes: type[LeaseError], says: str
) -> None:
    with pytest.raises(LeaseError, match=says) as translated, errors_of("/the/file"):
        raise raised
    assert type(translated.value) is becomes
    assert "/the/file" in str(translated.value)


@pytest.mark.parametrize(
    ("free", "says"),
    [
        (2, r"can't open \S*/state\.db: Too many open files"),
        (3, r"can't write \S*/state\.db: unable"),
    ],
)
def test_where_sqlite_does_not_say_why_it_is_tried_whether_three_files_can_be_opened(
    state_dir: Path, free: int, says: str
) -> None:
    State.open(str(state_dir)).close()
    path = str(state_dir / "state.db")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as files:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        while True:  # so that none below the limit is free but those
            fd = os.open(os.devnull, os.O_RDONLY)
            files.callback(os.close, fd)
            if fd > highest:
                break
        resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1 + free, limits[1]))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with pytest.raises(StateUnwritable, match=says), errors_of(path):
            raise sqlite3.OperationalError("unable to open database file")
        left = [os.open(os.devnull, os.O_RDONLY) for _ in range(free)]
        for fd in left:
            os.close(fd)


def test_mistakes_of_ours_are_not_taken_for_the_disks() -> None:
    with pytest.raises(ZeroDivisionError), errors_of("/the/file"):
        raise ZeroDivisionError
    with pytest.raises(BrokenPipeError), errors_of("/the/file"):
        raise BrokenPipeError(32, "Broken pipe")


def test_the_order_of_acquiring_needs_no_sort(cli: Cli) -> None:
    """What makes a large pool as fast as a small one: the free ones come out of an index."""
    cli.pool("T")
    request = Request("T")
    plan = cli.query(
        "EXPLAIN QUERY PLAN SELECT name FROM resource WHERE type = ? "
        "AND owner IS NULL AND closed = 0 ORDER BY fence, name LIMIT 1",
        request.type,
    )
    assert "USING INDEX resource_free" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


_VALUES = {"TEXT": "a text", "INTEGER": 1, "REAL": 1.0, "BLOB": b"bytes"}


def test_a_database_with_a_row_in_each_table_is_sound(state_dir: Path) -> None:
    with contextlib.closing(State.open(str(state_dir))) as state:
        with state.transaction():
            for (table,) in state.query("SELECT name FROM sqlite_master WHERE type = 'table'"):
                if table.startswith("sqlite_"):
                    continue
                columns = state.query(f"SELECT name, type FROM pragma_table_info('{table}')")
                # What is held can't be closed, as the table checks.
                values = [
                    _VALUES[each["type"]] if each["name"] != "closed" else 0 for each in columns
                ]
                marks = ", ".join("?" * len(values))
                state.db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)
        assert examine(state).problem is None


def test_what_there_is_to_say_of_a_sound_one(state: State) -> None:
    check_readable(state)
    assert examine(state) == Soundness(None, "wal", FORMAT)


def test_what_can_not_be_read_is_damage(state: State) -> None:
    with state.transaction() as db:
        db.execute("ALTER TABLE pool RENAME TO elsewhere")
    with pytest.raises(CorruptState, match="no such table: pool"):
        check_readable(state)


def test_what_an_index_lacks_is_found(state_dir: Path) -> None:
    with contextlib.closing(State.open(str(state_dir))) as state, state.transaction() as db:
        db.execute("INSERT INTO timer VALUES ('T-1', '', 1, 5.0)")
    with contextlib.closing(sqlite3.connect(state_dir / "state.db", isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        changed = "replace(sql, '(due)', '(acquisition)')"
        db.execute(f"UPDATE sqlite_master SET sql = {changed} WHERE name = 'timer_due'")
    with contextlib.closing(State.open(str(state_dir))) as state:
        problem = examine(state).problem
    assert problem is not None
    assert "timer_due" in problem


CORRUPT, UNKNOWN = 65, 66


def used(cli: Cli, *, times: int = 1) -> None:
    """Take and give back a lease, in a process that ends without closing the database."""

    def use() -> None:
        with cli.service() as service:
            for _ in range(times):
                handle = acquire(service, Request("T"), patience=Patience())
                announce(service, handle)
                finish(service, handle)
            os._exit(0)

    assert ending(fork(use)) == 0


def lose_log(cli: Cli) -> None:
    for name in ("state.db-wal", "state.db-shm"):
        (cli.state_dir / name).unlink(missing_ok=True)


def garble_log(cli: Cli) -> None:
    """All but the head of it: SQLite takes the rest for what was never committed."""
    (cli.state_dir / "state.db-shm").unlink(missing_ok=True)
    with open(cli.state_dir / "state.db-wal", "r+b") as log:
        log.seek(32 + 8)
        log.write(b"\xff" * 64)


def lose_log_and_lock(cli: Cli) -> None:
    lose_log(cli)
    (cli.state_dir / "state.lock").unlink()


def restart(cli: Cli) -> None:
    """The machine stopped before it had written anything of late to the disk."""
    lose_log(cli)
    with contextlib.closing(State.open(str(cli.state_dir))) as state:
        last, end = database.drawn(state._lock_fd)
        database.note_drawn(state._lock_fd, max(0, last - 3), end)
        with state.transaction() as db:
            db.execute("UPDATE meta SET boot_id = 'an earlier one'")


@pytest.fixture
def pool(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(fences, "BLOCK", 20)
    cli.pool("T", "T--00")
    return "T"


def test_a_pool_is_there_without_its_log(cli: Cli) -> None:
    cli.ok("pool", "create", "T", "--count", "1")
    lose_log(cli)
    assert cli.query("SELECT name FROM resource") == [("T--00",)]
    cli.ok("pool", "add", "T", "--names", "more")
    lose_log(cli)
    assert [name for (name,) in cli.query("SELECT name FROM resource")] == ["T--00", "more"]
    cli.ok("pool", "remove", "T", "--names", "more")
    lose_log(cli)
    assert cli.query("SELECT name FROM resource") == [("T--00",)]
    cli.ok("pool", "delete", "T")
    lose_log(cli)
    assert cli.query("SELECT name FROM resource") == []


@pytest.mark.parametrize("lose", [lose_log, garble_log, lose_log_and_lock, restart])
def test_no_fence_is_given_twice(cli: Cli, pool: str, lose: object) -> None:
    assert callable(lose)
    highest = 0
    for times in (1, 3, fences.BLOCK + 7, 2):
        used(cli, times=times)
        ((fence,),) = cli.query("SELECT fence FROM resource")
        assert highest + times <= int(str(fence)) <= highest + times + 2 * fences.BLOCK
        highest = int(str(fence))
        lose(cli)


def test_fences_are_consecutive_from_block_to_block(cli: Cli, pool: str) -> None:
    used(cli, times=fences.BLOCK + 7)
    assert cli.query("SELECT fence FROM resource") == [(fences.BLOCK + 7,)]
    assert cli.query("SELECT fence FROM meta") == [(2 * fences.BLOCK + 1,)]


def test_a_database_that_is_made_anew_goes_on_where_the_one_before_was(cli: Cli, pool: str) -> None:
    used(cli, times=3)
    lose_log(cli)
    (cli.state_dir / "state.db").unlink()
    cli.pool("T", "T--00")
    used(cli)
    ((fence,),) = cli.query("SELECT fence FROM resource")
    assert int(str(fence)) > 3


def test_a_fence_that_the_version_before_drew_is_not_drawn_again(cli: Cli, pool: str) -> None:
    used(cli, times=2)
    with cli.service() as service, service.state.transaction() as db:
        ((last,),) = db.execute("SELECT fence FROM meta").fetchall()
        db.execute("UPDATE meta SET fence = ?", (last + 1,))
        db.execute("UPDATE resource SET fence = ?", (last + 1,))
    used(cli)
    ((fence,),) = cli.query("SELECT fence FROM resource")
    assert int(str(fence)) == last + 2


def test_a_reader_who_is_in_the_way_costs_a_block_and_no_fence(cli: Cli, pool: str) -> None:
    used(cli, times=fences.BLOCK - 1)
    with cli.service() as reader:
        reader.state.db.execute("BEGIN")
        assert reader.state.query("SELECT fence FROM meta")
        used(cli, times=3)
        reader.state.db.execute("COMMIT")
    ((before,),) = cli.query("SELECT fence FROM resource")
    lose_log(cli)
    used(cli)
    ((fence,),) = cli.query("SELECT fence FROM resource")
    assert int(str(fence)) > int(str(before))


def test_where_the_pools_are_lost_as_well_the_error_says_so(cli: Cli, pool: str) -> None:
    path = cli.ok("acquire", "-t", "T").strip()
    for each in cli.state_dir.glob("state.db*"):
        each.unlink()
    refused = cli("release", path)
    assert refused.code == CORRUPT
    assert f"{path} lists T--00" in refused.err
    assert "the database was lost, and its pools with it" in refused.err
    assert "release --names" not in refused.err
    cli.pool("T", "T--00")
    assert cli("release", path).code == CORRUPT
    assert "release --names T--00" in cli("release", path).err


def test_a_handle_without_its_record_is_damage_and_not_a_mistake(cli: Cli, pool: str) -> None:
    path = cli.ok("acquire", "-t", "T").strip()
    handle = Path(path)
    lose_log(cli)
    for command in ("release", "reacquire", "renew", "cat"):
        for named in (path, handle.name):
            finished = cli(command, "--handle", named)
            assert finished.code == CORRUPT, finished
            assert f"{path} lists T--00" in finished.err
            assert "release --names T--00" in finished.err
    assert handle.read_text() == "T--00"
    # A copy elsewhere is released by its names, as ever; nobody holds them.
    copy = cli.cwd / "copy"
    copy.write_text("T--00\n")
    assert cli("release", "--handle", str(copy)).code == 0
    # And what isn't a names file, or names nothing, is no handle.
    handle.write_text("")
    assert cli("release", "--handle", path).code == UNKNOWN
    handle.write_text("somebody's own\n")
    assert cli("release", "--handle", path).code == UNKNOWN
