"""What a reboot changes: times of CLOCK_BOOTTIME begin anew."""

from __future__ import annotations

import sqlite3

from leasectl.system.process import boot_id

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
    """Inside a transaction: let everything that was due at some uptime be due at once.

    What a lease that expires was held for can't have survived the reboot either, and nobody who
    waited; and a pool owes no time for what it granted before.
    """
    db.execute("UPDATE meta SET boot_id = ?", (boot_id(),))
    for statement in _FORGET:
        db.execute(statement)
