"""Fences, reserved in blocks, so that none is given twice."""

from __future__ import annotations

import sqlite3

from leasectl.system.process import boot_id

# Writing back takes as long as about ten grants, or a hundred on a slow disk.
BLOCK = 1000
_PATIENCE_MS = 100


def reserve(db: sqlite3.Connection, last: int) -> int:
    """Reserve a block of fences, inside a transaction after which `write_back` is called.

    Returns:
        The last fence of the block.
    """
    end = last + BLOCK
    db.execute("UPDATE meta SET fence = ?", (end,))
    return end


def write_back(db: sqlite3.Connection) -> bool:
    """Write all that is committed to the database's main file; outside any transaction.

    Returns:
        Whether that worked: a long reader or a full disk may prevent it.
    """
    try:
        ((before,),) = db.execute("PRAGMA busy_timeout").fetchall()
        db.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        try:
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        finally:
            db.execute(f"PRAGMA busy_timeout = {before}")
    except sqlite3.Error:
        return False
    return not busy


_FORGET = (
    "UPDATE timer SET due = 0",
    "UPDATE resource SET expires_at = 0 WHERE expires_at IS NOT NULL",
    "UPDATE handle SET released_at = 0 WHERE released_at IS NOT NULL",
    "UPDATE handle SET queued_at = NULL WHERE queued_at IS NOT NULL",
    "UPDATE handle SET granted_at = NULL WHERE granted_at IS NOT NULL",
    "UPDATE pool_setting SET paid_until = 0",
    "DELETE FROM ranked_ticket",
    "UPDATE member SET ends_at = 0 WHERE ends_at IS NOT NULL",
    "UPDATE mark_seen SET ends_at = 0",
    "UPDATE name_in_use SET until = 0 WHERE until IS NOT NULL",
    "UPDATE member SET held_back_until = 0 WHERE held_back_until IS NOT NULL",
)


def note_boot(db: sqlite3.Connection) -> None:
    """After a reboot, let everything be due at once that was due at some uptime; in a transaction.

    No waiter and no holder of a lease with a ttl has survived the reboot, and a pool owes no time
    for its earlier grants.
    """
    db.execute("UPDATE meta SET boot_id = ?", (boot_id(),))
    for statement in _FORGET:
        db.execute(statement)
