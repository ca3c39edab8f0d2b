"""The database of a state directory: its schema, how it is opened, what its errors mean."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from leasectl.errors import CorruptState, LeaseError, StateUnwritable
from leasectl.system.process import boot_id

SCHEMA_VERSION = 2
_APPLICATION_ID = 0x6C656173  # "leas"

_SCHEMA = """
CREATE TABLE meta (
  fence INTEGER NOT NULL,          -- the last one given; one counter for all, so none repeats
  boot_id TEXT NOT NULL,           -- the boot that the due times below belong to
  purge_cursor TEXT NOT NULL,
  place TEXT NOT NULL              -- tells this state directory from all others, everywhere
);
CREATE TABLE pool (
  type TEXT PRIMARY KEY,
  capacity INTEGER NOT NULL,
  last_ticket INTEGER NOT NULL,
  last_grant INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE resource (
  name TEXT PRIMARY KEY,
  type TEXT NOT NULL,
  fence INTEGER NOT NULL,          -- of the last grant; 0 if never
  lease_transitions INTEGER NOT NULL,
  owner TEXT,                      -- the holding handle; NULL when free
  holder_identity TEXT,
  ticket INTEGER,
  grant_number INTEGER,
  acquire_time REAL,
  renew_time REAL,
  lease_duration_seconds REAL,
  expires_at REAL,                 -- CLOCK_BOOTTIME; NULL when it doesn't expire
  labels TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX resource_free ON resource (type, fence, name) WHERE owner IS NULL;
CREATE INDEX resource_of_pool ON resource (type, name);
CREATE INDEX resource_expiry ON resource (type, expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE ticket (
  type TEXT NOT NULL,
  number INTEGER NOT NULL,
  owner TEXT NOT NULL,
  holder_identity TEXT NOT NULL,
  count INTEGER NOT NULL,
  since REAL NOT NULL,
  process TEXT,
  pipe TEXT NOT NULL,              -- in waiters/; opened and closed, it wakes the owner
  PRIMARY KEY (type, number)
) WITHOUT ROWID;
CREATE TABLE handle (
  id TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  type TEXT NOT NULL,
  count INTEGER NOT NULL,
  name TEXT,
  ttl_seconds REAL,
  release_after_seconds REAL,
  scope TEXT NOT NULL,
  labels TEXT NOT NULL,
  owner TEXT NOT NULL,
  holder_identity TEXT NOT NULL,
  state TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  guard TEXT,
  waiter TEXT,
  runner TEXT,
  shared_dir TEXT,
  released_at REAL,                -- CLOCK_BOOTTIME
  lost INTEGER NOT NULL,
  settings TEXT NOT NULL,
  lost_replies INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  watched INTEGER NOT NULL         -- the keeper has something to do for it while not released
) WITHOUT ROWID;
CREATE INDEX handle_watched ON handle (id) WHERE watched = 1 AND state <> 'released';
CREATE INDEX handle_untold ON handle (id) WHERE waiter IS NOT NULL AND state = 'held';
CREATE TABLE lease (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,       -- in the order of the grant
  fence INTEGER NOT NULL,          -- this and the next two: 0 where the backend has none
  ticket INTEGER NOT NULL,
  grant_number INTEGER NOT NULL,
  acquire_time REAL NOT NULL,
  renew_time REAL NOT NULL,
  lease_transitions INTEGER NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE timer (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,              -- '' for all that the handle holds
  acquisition INTEGER NOT NULL,    -- void for any other
  due REAL NOT NULL,               -- CLOCK_BOOTTIME
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE giving_back (         -- releases under way that are not yet certain
  backend TEXT NOT NULL,
  name TEXT NOT NULL,
  process TEXT NOT NULL,
  PRIMARY KEY (backend, name, process)
) WITHOUT ROWID;
CREATE TABLE keeper (
  pid_namespace INTEGER PRIMARY KEY,
  process TEXT NOT NULL
);
"""


def create(path: str) -> None:
    """Make the database beside its place and move it there whole, so that empty means damaged.

    Raises:
        CorruptState: The database is gone, but its log is there.
    """
    if os.path.exists(path + "-wal"):
        raise _corrupt(path, "is missing, but its log is there")
    temporary = path + ".new"
    unlink(temporary)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(temporary, isolation_level=None)
    try:
        db.execute("PRAGMA page_size = 1024")  # rows are short, and whole pages are logged
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        db.execute("INSERT INTO meta VALUES (0, ?, '', ?)", (boot_id(), _new_place()))
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    finally:
        db.close()
    os.rename(temporary, path)


def connect(path: str) -> sqlite3.Connection:
    """Open a database that is there.

    Raises:
        CorruptState: It is damaged, no database of ours, or from a newer version.
    """
    if os.path.getsize(path) == 0:
        raise _corrupt(path, "is empty")
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    application_id = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application_id != _APPLICATION_ID:
        raise _corrupt(path, "is not a leasectl database")
    if version > SCHEMA_VERSION:
        raise CorruptState(
            f"{path} was written by a newer version of leasectl (schema {version}, this one reads "
            f"{SCHEMA_VERSION}); use that version, or another LEASECTL_STATE_DIR"
        )
    if version < SCHEMA_VERSION:
        _update(db)
    db.execute("PRAGMA synchronous = NORMAL")
    # Small, because a log that no process has open is read through by the next that opens it.
    db.execute("PRAGMA wal_autocheckpoint = 1000")
    return db


def _update(db: sqlite3.Connection) -> None:
    """Make of an older database one of this version; whoever comes second finds it made."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if db.execute("PRAGMA user_version").fetchone()[0] == 1:
            db.execute(f"ALTER TABLE meta ADD COLUMN place TEXT NOT NULL DEFAULT '{_new_place()}'")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _new_place() -> str:
    return os.urandom(8).hex()


def _corrupt(path: str, what: str) -> CorruptState:
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
    except sqlite3.Error as error:
        raise translate(path, error) from error
    except OSError as error:
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


def translate(path: str, error: sqlite3.Error) -> LeaseError:
    """Turn an error of SQLite into one of ours."""
    message = str(error)
    # Python 3.9 and 3.10 give no error code with the exception, only SQLite's fixed texts.
    if "full" in message or "readonly" in message or "disk I/O" in message or "unable" in message:
        return StateUnwritable(
            f"can't write {path}: {message}; free space or rights there, "
            "or choose another directory with LEASECTL_STATE_DIR"
        )
    if "locked" in message:
        return LeaseError(f"{path} is busy ({message}); try again")
    return _corrupt(path, f"is damaged ({message})")


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
