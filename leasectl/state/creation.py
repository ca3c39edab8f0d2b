"""Create the directory and its database."""

from __future__ import annotations

import os
import sqlite3

from leasectl.state.database import APPLICATION_ID, FORMAT, corrupt, make_folder, unlink
from leasectl.state.schema import SCHEMA, new_state_id
from leasectl.system.process import boot_id


def create(path: str, *, fence: int) -> None:
    """Create the folders, then the database under another name, and rename it when it is complete.

    So an empty database means a damaged one. The caller holds ``state.lock``.

    Args:
        path: Of the database.
        fence: The last reserved fence.

    Raises:
        CorruptState: The database is gone, but its log is there.
    """
    for folder in ("handles", "waiters"):
        make_folder(os.path.join(os.path.dirname(path), folder))
    if os.path.exists(path + "-wal"):
        raise corrupt(path, "is missing, but its log is there")
    temporary = path + ".new"
    unlink(temporary)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _fill(temporary, fence)
        os.fsync(fd)
    finally:
        os.close(fd)  # after SQLite's close: this close drops SQLite's locks too
    os.rename(temporary, path)


def _fill(path: str, fence: int) -> None:
    """Create the database in a new file, without a journal."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA page_size = 1024")  # rows are short, and whole pages are logged
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(f"BEGIN; {SCHEMA}")
        db.execute(
            "INSERT INTO meta (fence, boot_id, purge_cursor, place) VALUES (?, ?, '', ?)",
            (fence, boot_id(), new_state_id()),
        )
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()
