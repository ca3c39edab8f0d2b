"""Back up a state directory while it is in use, and restore one.

A backup is a copy of the database as one transaction left it, with the time of the copy. What a
restored database says may be outdated, so a restore adapts it before it takes its place:

=====================  ==================================================================
in the backup          restored
=====================  ==================================================================
fencing tokens         the next is above all that the backup, or the database in its
                       place, ever reserved; and above those that may have come since
a lease without a ttl  held, until it is released
a lease with a ttl     held for one ttl more; its holder renews it, or it expires
a waiting request      forgotten: its process asks again, or is dead
a delayed release      due at the same time; on another boot, at once
the keeper             forgotten: the next command starts one
=====================  ==================================================================

A kill before the new database is renamed leaves the earlier one in its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from leasectl.errors import CorruptState, NotFound, StateUnwritable
from leasectl.state.database import (
    DAMAGED,
    absolute,
    connect,
    drawn,
    errors_of,
    make_folder,
    note_boot,
    note_drawn,
    open_directory,
    open_lock,
    unlink,
)
from leasectl.state.directory import State
from leasectl.system.clock import Clock, rfc3339
from leasectl.system.lock_wait import LockLimit, flock_exclusive
from leasectl.system.own_files import read_own, write_new
from leasectl.system.process import boot_id

# More than any pool grants between a backup and the end of what it is a backup of.
_FENCES_ABOVE = 1_000_000_000
_NOTICE = "restored"
_LONGEST_NOTICE = 100
_FORGET = (
    "DELETE FROM ticket",
    "DELETE FROM suspended",
    "DELETE FROM ranked_ticket",
    "DELETE FROM handle WHERE state = 'acquiring'",
    "DELETE FROM giving_back",
    "DELETE FROM follower",
    "DELETE FROM keeper",
)


class Restored(NamedTuple):
    """What was restored.

    Args:
        taken_at: The time of the backup, wall clock.
        held: How many resources of the embedded pools were held then.
        fence: No earlier fencing token is larger.
        replaced: Where the database is that was in its place; None for none.
    """

    taken_at: float
    held: int
    fence: int
    replaced: str | None


def back_up(state: State, path: str, *, clock: Clock) -> None:
    """Write a backup to a file, mode 0600, that replaces what has its name.

    Args:
        state: The opened state directory.
        path: Of the backup.
        clock: Where times come from.

    Raises:
        StateUnwritable: The file can't be written.
        CorruptState: The database is damaged.
    """
    temporary = f"{path}.new"
    with errors_of(state.path("state.db")), _writing(path):
        write_new(temporary, b"")
        try:
            state.db.execute("VACUUM INTO ?", (temporary,))
            with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
                copy.execute("CREATE TABLE backup (taken_at REAL NOT NULL)")
                copy.execute("INSERT INTO backup VALUES (?)", (clock.wall(),))
            _sync(temporary)
            os.replace(temporary, path)
        except BaseException:
            unlink(temporary)
            raise


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateUnwritable(
            f"can't write the backup {path}: {error.strerror}; choose another file"
        ) from error


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def restore(directory: str, path: str, *, clock: Clock) -> Restored:
    """Put a backup in the place of a state directory's database, or make a new directory of it.

    Processes that use the directory end: they notice that their database was replaced.

    Args:
        directory: Of the state directory.
        path: Of the backup.
        clock: Where times come from.

    Raises:
        NotFound: The file isn't there.
        CorruptState: It is no backup, or damaged.
        StateUnwritable: The directory can't be written, or isn't private.
    """
    directory = absolute(directory)
    with contextlib.ExitStack() as opened:
        dir_fd = open_directory(directory, create=True)
        opened.callback(os.close, dir_fd)
        limit = LockLimit()
        lock_fd = open_lock(directory, dir_fd, limit)
        opened.callback(os.close, lock_fd)
        database = os.path.join(directory, "state.db")
        with errors_of(database):
            for folder in ("handles", "waiters"):
                make_folder(os.path.join(directory, folder))
            temporary = f"{database}.restoring"
            unlink(temporary)
            opened.callback(unlink, temporary)
            _copy(path, temporary)
            flock_exclusive(lock_fd, limit)
            replaced, earlier = _end_earlier(database, dir_fd, lock_fd)
            restored = _adapt(path, temporary, dir_fd, earlier, clock)
            os.replace(temporary, database)
            note_drawn(lock_fd, 0, 0)
            times = f"{restored.taken_at} {clock.wall()}\n"
            write_new(os.path.join(directory, _NOTICE), times.encode())
            fcntl.flock(lock_fd, fcntl.LOCK_UN)
    _write_names_files(directory)
    return restored._replace(replaced=replaced)


def take_notice(state: State) -> float | None:
    """Return the time of the backup, if the directory was restored and nobody has asked yet."""
    path = state.path(_NOTICE)
    try:
        taken_at = float(read_own(path, _LONGEST_NOTICE).split()[0])
        os.unlink(path)
    except (OSError, ValueError, IndexError):
        return None
    return taken_at


def unknown_since(taken_at: float) -> str:
    """Return what people should know of leases after a restore."""
    return (
        f"leases granted after {rfc3339(taken_at)}, the time of the restored backup, are unknown "
        "here and may be granted again; end the jobs that hold them"
    )


def _copy(path: str, temporary: str) -> None:
    """Copy a backup into a new database."""
    if not os.path.isfile(path):
        raise NotFound(f"no backup {path}; write one with: leasectl backup FILE")
    write_new(temporary, b"")
    try:
        source = sqlite3.connect(f"file:{_quoted(path)}?mode=ro&immutable=1", uri=True)
        with contextlib.closing(source):
            source.execute("SELECT taken_at FROM backup").fetchone()
            with contextlib.closing(sqlite3.connect(temporary)) as copy:
                source.backup(copy)
                ((found,), *_) = copy.execute("PRAGMA quick_check").fetchall()
                if found != "ok":
                    raise sqlite3.DatabaseError(found)
                copy.execute("PRAGMA journal_mode = WAL")
    except DAMAGED as error:
        raise CorruptState(
            f"{path} is not a backup that leasectl wrote, or damaged ({error}); use another"
        ) from error


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))


def _end_earlier(database: str, dir_fd: int, lock_fd: int) -> tuple[str | None, int]:
    """Keep the database that is in place, under another name.

    Returns:
        That name, None for none; and its largest fence.
    """
    fence = max(drawn(lock_fd))
    if not os.path.exists(database):
        return None, fence
    aside = f"{database}.replaced"
    for ending in ("", "-wal"):
        unlink(aside + ending)
    try:
        with contextlib.closing(connect(database, dir_fd=dir_fd)) as db:
            fence = max(fence, db.execute("SELECT fence FROM meta").fetchone()[0])
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (CorruptState, *DAMAGED):
        pass  # all of it is kept as it is
    os.link(database, aside)
    if os.path.exists(f"{database}-wal"):
        os.rename(f"{database}-wal", f"{aside}-wal")
    unlink(f"{database}-shm")
    return aside, fence


def _adapt(path: str, temporary: str, dir_fd: int, earlier: int, clock: Clock) -> Restored:
    try:
        db = connect(temporary, dir_fd=dir_fd)
    except CorruptState as error:
        raise CorruptState(f"{path}: {str(error).partition(temporary)[2].strip()}") from None
    with contextlib.closing(db):
        db.execute("BEGIN IMMEDIATE")
        ((taken_at,),) = db.execute("SELECT taken_at FROM backup").fetchall()
        ((fence, boot),) = db.execute("SELECT fence, boot_id FROM meta").fetchall()
        if boot != boot_id():
            note_boot(db)
        for statement in _FORGET:
            db.execute(statement)
        fence = max(fence, earlier) + _FENCES_ABOVE
        db.execute("UPDATE meta SET fence = ?", (fence,))
        db.execute(
            "UPDATE resource SET expires_at = ? + lease_duration_seconds "
            "WHERE owner IS NOT NULL AND expires_at IS NOT NULL "
            "AND lease_duration_seconds IS NOT NULL",
            (clock.elapsed(),),
        )
        ((held,),) = db.execute("SELECT count(owner) FROM resource").fetchall()
        db.execute("DROP TABLE backup")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Restored(taken_at, held, fence, None)


def _write_names_files(directory: str) -> None:
    """Write the names files of all that is held, which a backup doesn't have."""
    state = State.open(directory)
    with contextlib.closing(state):
        rows = state.query("SELECT handle, name FROM lease ORDER BY handle, position")
        with state.transaction():
            for handle_id, leases in groupby(rows, key=lambda row: row["handle"]):
                state.stage_names(handle_id, [row["name"] for row in leases])
