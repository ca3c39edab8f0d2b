"""The database of a state directory and the folder that it is in: how they are made and opened,
and what their errors mean."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from leasectl.errors import (
    CorruptState,
    LeaseError,
    StateUnwritable,
    is_out_of_files,
    out_of_files,
)
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:  # of which that is made; it loads `datetime` besides
    import _sqlite3 as sqlite3

SCHEMA_VERSION = 10
APPLICATION_ID = 0x6C656173  # "leas"
# Of a process: few commands make so many.
TRANSACTIONS_OF_MANY = 16
# What SQLite raises. Where its words quote a damaged table, Python may not be able to read them.
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
_FILES_OF_SQLITE = 3  # the database, its log, the index of that


def connect(path: str, *, alone: bool = False) -> sqlite3.Connection:
    """Open a database that is there.

    Args:
        path: Its place.
        alone: Let nobody else open it meanwhile.

    Raises:
        CorruptState: It is damaged, no database of ours, or from a newer version.
    """
    if os.path.getsize(path) == 0:
        raise corrupt(path, "is empty")
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        _prepare(path, db, alone=alone)
    except BaseException:
        db.close()  # or it would be in the way of the next
        raise
    return db


def _prepare(path: str, db: sqlite3.Connection, *, alone: bool) -> None:
    if alone:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
    application_id = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise corrupt(path, "is not a leasectl database")
    if version > SCHEMA_VERSION:
        raise CorruptState(
            f"{path} was written by a newer version of leasectl (schema {version}, this one reads "
            f"{SCHEMA_VERSION}); use that version, or another LEASECTL_STATE_DIR"
        )
    db.row_factory = sqlite3.Row
    if version < SCHEMA_VERSION:
        from leasectl.state.migrations import migrate

        migrate(db, to=SCHEMA_VERSION)
    db.execute("PRAGMA synchronous = NORMAL")
    # Small, because a log that no process has open is read through by the next that opens it.
    db.execute("PRAGMA wal_autocheckpoint = 1000")


def let_log_grow(db: sqlite3.Connection) -> None:
    """Have the log be emptied a third as often, by a process that changes the database often.

    To empty it takes until the disk has answered three times, and nobody has the lock meanwhile. A
    short command does it as early as ever, and then with what such a process has left.

    Args:
        db: With a log of up to three MiB from here on: `event_rows` leaves room for that.
    """
    db.execute("PRAGMA wal_autocheckpoint = 3000")


def expect_to_read_all(db: sqlite3.Connection) -> None:
    """Have room for what is read again, of thousands of records: up to 16 MiB instead of two."""
    db.execute("PRAGMA cache_size = -16384")


def connect_to_show(path: str) -> sqlite3.Connection:
    """Open a database for a moment, to show what is in it, on a full disk too.

    There SQLite can't make the file that those who have it open share: nobody else can have.

    Raises:
        CorruptState: As `connect`.
    """
    try:
        db = connect(path)
    except sqlite3.OperationalError:
        db = connect(path, alone=True)
    expect_to_read_all(db)
    return db


def corrupt(path: str, what: str) -> CorruptState:
    """The error for a database that isn't as any version leaves it, and what to do about it."""
    folder = os.path.dirname(path)
    return CorruptState(
        f"{path} {what}; if no job here still needs its leases, start afresh with: "
        f"mv {folder} {folder}.damaged"
    )


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """The one place where the errors of SQLite and the file system become ours."""
    try:
        yield
    except DAMAGED as error:
        raise translate(path, error) from error
    except OSError as error:
        if is_out_of_files(error):
            raise out_of_files(error) from error
        if error.errno not in _UNWRITABLE:
            raise
        where = error.filename or path
        raise StateUnwritable(
            f"can't write {where}: {error.strerror}; free space or rights there, "
            "or choose another directory with LEASECTL_STATE_DIR"
        ) from error


_UNWRITABLE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def translate(path: str, error: Exception) -> LeaseError:
    """Turn an error of SQLite, one of `DAMAGED`, into one of ours."""
    message = str(error)
    # Python 3.9 and 3.10 give no error code with the exception, only SQLite's fixed texts.
    if "unable" in message:
        with errors_of(path):
            _open_some(path)
    if "full" in message or "readonly" in message or "disk I/O" in message or "unable" in message:
        return StateUnwritable(
            f"can't write {path}: {message}; free space or rights there, "
            "or choose another directory with LEASECTL_STATE_DIR"
        )
    if "locked" in message:
        return LeaseError(f"{path} is busy ({message}); try again")
    return corrupt(path, f"is damaged ({message})")


def _open_some(path: str) -> None:
    """Open as many files as SQLite does, and close them: it doesn't say that it mayn't."""
    opened: list[int] = []
    try:
        while len(opened) < _FILES_OF_SQLITE:
            opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in opened:
            os.close(fd)


def make_folder(path: str) -> None:
    """Make a folder of ours, unless it is there: who cleans /tmp removes those that are empty."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def check_directory(directory: str, *, create: bool) -> None:
    """Check that a state directory is a private folder of ours.

    Args:
        directory: Its path.
        create: Make it, for us alone, when nothing is there.

    Raises:
        StateUnwritable: It is a symbolic link, no folder, somebody else's, or open to others; or
            handles in it would be more than a line.
    """
    if "\n" in directory:
        raise StateUnwritable(
            f"state directory {directory!r} has a line break in its path, which a handle can't "
            "have; choose another with LEASECTL_STATE_DIR"
        )
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        if not create:
            raise StateUnwritable(f"state directory {directory} does not exist") from None
        with errors_of(directory):
            _make_directory(directory)
            found = os.lstat(directory)
    except OSError as error:
        raise StateUnwritable(
            f"state directory {directory}: {error.strerror}; choose another with LEASECTL_STATE_DIR"
        ) from None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or found.st_mode & 0o077:
        from leasectl.state.refusals import unfit

        raise unfit(directory, found)


def _make_directory(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(directory)):
            raise  # as in /proc, where nobody makes anything
        from leasectl.state.refusals import no_parent

        raise no_parent(directory) from None


def absolute(directory: str) -> str:
    """The path of a state directory, wherever this process goes from here on.

    Raises:
        StateUnwritable: It is given from a folder that is gone.
    """
    try:
        return os.path.abspath(directory)
    except FileNotFoundError:
        from leasectl.state.refusals import nowhere

        raise nowhere(directory) from None
