"""leasectl.state.database: what is said of a database that isn't as it should be."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.errors import CorruptState, LeaseError, StateUnwritable
from leasectl.model import Request
from leasectl.state import database
from leasectl.state.database import (
    EARLIER_APPLICATION_ID,
    FORMAT,
    connect,
    connect_to_show,
    errors_of,
    open_directory,
)
from leasectl.state.directory import State
from tests.kit.descriptors import leaving_open
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
    # The error's traceback keeps the connection, which stays open unless it was closed.
    with leaving_open(0), pytest.raises(CorruptState) as reported:
        connect(str(path), dir_fd=dir_fd)
    assert reported.value.__traceback__ is not None


@pytest.mark.parametrize("sixteenths", [1, 4, 8, 15])
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
    with pytest.raises(CorruptState, match=r"^\S*/state\.db is missing, but its write-ahead log"):
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
