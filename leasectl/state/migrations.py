"""From one version of the schema to the next, one step each, all of them at once.

A step may find processes of the version before at work, as `schema` says. It needs another
``__version__`` than that: keepers are told apart by it, and one that runs is asked to make way.
"""

from __future__ import annotations

import sqlite3

from leasectl.state.fences import write_back
from leasectl.state.keeper_version import hand_over
from leasectl.state.rows import ADOPTED_LABEL, SERVED_LABEL
from leasectl.state.schema import new_state_id
from leasectl.typed.hints import Callable


def migrate(db: sqlite3.Connection, *, to: int) -> None:
    """Make of an older database one of a version; whoever comes second finds it made.

    First its main file is made to hold what it has: what drew a fence until now noted that in the
    log alone, and no ``state.lock`` knows of it. A keeper of that version is asked to make way.

    Args:
        db: The database, in autocommit mode.
        to: The version of the schema.
    """
    write_back(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        for number in range(version, to):
            _STEPS[number](db)
        if version < to:
            db.execute(f"PRAGMA user_version = {to}")
            hand_over(db)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _name_the_directory(db: sqlite3.Connection) -> None:
    """1 to 2: an id that tells this state directory from all others, everywhere."""
    db.execute(f"ALTER TABLE meta ADD COLUMN place TEXT NOT NULL DEFAULT '{new_state_id()}'")


def _give_flags_columns(db: sqlite3.Connection) -> None:
    """2 to 3: what labels said of a handle gets columns, and keepers say which version they run.

    The labels stay, for they are shown to people and read by processes of schema 2. So does the
    count that a server of theirs keeps of its unconfirmed answers, for it goes on by that.
    """
    db.execute("ALTER TABLE handle ADD COLUMN adopted_claim TEXT")
    db.execute("ALTER TABLE handle ADD COLUMN served INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE handle ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0")
    db.execute(
        "UPDATE handle SET adopted_claim = substr(labels, length(:label) + 1) "
        "WHERE substr(labels, 1, length(:label)) = :label",
        {"label": f"{ADOPTED_LABEL}="},
    )
    db.execute(
        "UPDATE handle SET served = 1, unconfirmed = lost_replies > 0 "
        "WHERE substr(labels, 1, length(:label)) = :label",
        {"label": f"{SERVED_LABEL}="},
    )
    db.execute(
        "CREATE TABLE keeper_version (pid_namespace INTEGER PRIMARY KEY, process TEXT NOT NULL, "
        "version TEXT NOT NULL, asked TEXT NOT NULL)"
    )


def _say_whose_ttl_it_is(db: sqlite3.Connection) -> None:
    """3 to 4: whether a ttl was asked for, since then nobody renews it for who has no guard.

    Those who hold by one already go on as they began: renewed by a keeper.
    """
    db.execute("ALTER TABLE handle ADD COLUMN explicit_ttl INTEGER NOT NULL DEFAULT 0")


def _take_several_types(db: sqlite3.Connection) -> None:
    """4 to 5: a request may name several types, and a record says which of them it got."""
    db.execute("ALTER TABLE handle ADD COLUMN types TEXT")


def _let_tickets_be_passed(db: sqlite3.Connection) -> None:
    """5 to 6: which tickets others may pass; keepers see to it from now on."""
    db.execute(
        "CREATE TABLE suspended (type TEXT NOT NULL, number INTEGER NOT NULL, "
        "owner TEXT NOT NULL, PRIMARY KEY (type, number)) WITHOUT ROWID"
    )


def _keep_what_was_ended(db: sqlite3.Connection) -> None:
    """6 to 7: what was ended by force is kept for a while for its holder, who is told why."""
    db.execute("ALTER TABLE handle ADD COLUMN lost_reason TEXT NOT NULL DEFAULT ''")
    db.execute(
        "CREATE TABLE ended (name TEXT PRIMARY KEY, type TEXT NOT NULL, claim_key TEXT NOT NULL, "
        "guard TEXT, reason TEXT NOT NULL) WITHOUT ROWID"
    )


def _keep_history_and_pace(db: sqlite3.Connection) -> None:
    """7 to 8: events, pools with settings, requests with a priority."""
    db.execute("ALTER TABLE handle ADD COLUMN priority INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE handle ADD COLUMN queued_at REAL")
    db.execute("ALTER TABLE handle ADD COLUMN granted_at REAL")
    db.execute("ALTER TABLE handle ADD COLUMN release_between TEXT")
    db.execute(
        "CREATE TABLE pool_setting (type TEXT PRIMARY KEY, pace_seconds REAL NOT NULL, "
        "burst INTEGER NOT NULL, aging_seconds REAL NOT NULL, paid_until REAL NOT NULL) "
        "WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE ranked_ticket (type TEXT NOT NULL, number INTEGER NOT NULL, "
        "owner TEXT NOT NULL, priority INTEGER NOT NULL, queued_at REAL NOT NULL, "
        "PRIMARY KEY (type, number)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE INDEX ranked_ticket_order ON ranked_ticket (type, priority, queued_at, number)"
    )
    db.execute(
        "CREATE TABLE event (number INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, "
        "backend TEXT NOT NULL, type TEXT NOT NULL, names TEXT NOT NULL, fences TEXT NOT NULL, "
        "handle TEXT NOT NULL, acquisition INTEGER NOT NULL, holder_identity TEXT NOT NULL, "
        "count INTEGER NOT NULL, priority INTEGER NOT NULL, ticket INTEGER NOT NULL, "
        "grant_number INTEGER NOT NULL, wait_seconds REAL, hold_seconds REAL, "
        "ended_by TEXT NOT NULL, reason TEXT NOT NULL)"
    )
    db.execute("CREATE TABLE follower (pipe TEXT PRIMARY KEY, process TEXT NOT NULL) WITHOUT ROWID")


def _keep_members_notes_and_values(db: sqlite3.Connection) -> None:
    """8 to 9: what is so of names, notes at claims, what is in use, what is kept beside pools."""
    db.execute("ALTER TABLE handle ADD COLUMN where_properties TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE handle ADD COLUMN on_reclaim TEXT NOT NULL DEFAULT 'keep'")
    db.execute("ALTER TABLE handle ADD COLUMN joined INTEGER")
    db.execute(
        "CREATE TABLE member (name TEXT PRIMARY KEY, expected TEXT, by_default INTEGER NOT NULL, "
        "cordoned INTEGER NOT NULL, moves_to TEXT, leaves INTEGER NOT NULL, process TEXT, "
        "ttl_seconds REAL, ends_at REAL, joined INTEGER NOT NULL, held_back_until REAL, "
        "properties TEXT NOT NULL) WITHOUT ROWID"
    )
    db.execute(
        "CREATE INDEX member_special ON member (name) WHERE cordoned OR leaves "
        "OR moves_to IS NOT NULL OR process IS NOT NULL OR ends_at IS NOT NULL "
        "OR held_back_until IS NOT NULL"
    )
    db.execute(
        "CREATE TABLE expected_pattern (pattern TEXT PRIMARY KEY, type TEXT NOT NULL) WITHOUT ROWID"
    )
    db.execute("CREATE TABLE default_pool (type TEXT NOT NULL, grace_seconds REAL NOT NULL)")
    db.execute(
        "CREATE TABLE stay (backend TEXT NOT NULL, settings TEXT NOT NULL, name TEXT NOT NULL, "
        "type TEXT NOT NULL, process TEXT NOT NULL, ttl_seconds REAL NOT NULL, "
        "PRIMARY KEY (backend, name)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE made_pool (backend TEXT NOT NULL, settings TEXT NOT NULL, "
        "type TEXT NOT NULL, process TEXT NOT NULL, PRIMARY KEY (backend, type, process)) "
        "WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE name_in_use (handle TEXT NOT NULL, acquisition INTEGER NOT NULL, "
        "name TEXT NOT NULL, until REAL, PRIMARY KEY (handle, name)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE mark_seen (handle TEXT NOT NULL, acquisition INTEGER NOT NULL, "
        "name TEXT NOT NULL, id TEXT NOT NULL, asked_by TEXT NOT NULL, ends_at REAL NOT NULL, "
        "is_ready INTEGER NOT NULL, PRIMARY KEY (handle, name)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE TRIGGER lease_ended AFTER DELETE ON lease BEGIN "
        "DELETE FROM name_in_use WHERE handle = old.handle AND name = old.name; "
        "DELETE FROM mark_seen WHERE handle = old.handle AND name = old.name; END"
    )
    db.execute(
        "CREATE TABLE note (name TEXT PRIMARY KEY, fence INTEGER NOT NULL, text TEXT NOT NULL) "
        "WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE value (key TEXT PRIMARY KEY, content BLOB NOT NULL, "
        "version INTEGER NOT NULL, written_at REAL NOT NULL, kept_until REAL)"
    )


def _note_what_changes(db: sqlite3.Connection) -> None:
    """9 to 10: what changes is noted for keepers, and found by when it is due."""
    db.execute("CREATE TABLE handle_change (number INTEGER PRIMARY KEY, handle TEXT NOT NULL)")
    db.execute(
        "CREATE TRIGGER watched_added AFTER INSERT ON handle WHEN new.watched BEGIN "
        "INSERT INTO handle_change (handle) VALUES (new.id); END"
    )
    db.execute(
        "CREATE TRIGGER watched_changed AFTER UPDATE OF state, acquisition, ttl_seconds, "
        "explicit_ttl, guard, waiter, runner, watched ON handle "
        "WHEN (old.watched AND old.state <> 'released') "
        "OR (new.watched AND new.state <> 'released') "
        "BEGIN INSERT INTO handle_change (handle) VALUES (new.id); END"
    )
    db.execute(
        "CREATE TRIGGER watched_removed AFTER DELETE ON handle "
        "WHEN old.watched AND old.state <> 'released' "
        "BEGIN INSERT INTO handle_change (handle) VALUES (old.id); END"
    )
    db.execute("CREATE INDEX timer_due ON timer (due)")


# By the version that they lead away from.
_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: _name_the_directory,
    2: _give_flags_columns,
    3: _say_whose_ttl_it_is,
    4: _take_several_types,
    5: _let_tickets_be_passed,
    6: _keep_what_was_ended,
    7: _keep_history_and_pace,
    8: _keep_members_notes_and_values,
    9: _note_what_changes,
}
