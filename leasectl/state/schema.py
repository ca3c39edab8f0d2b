"""The tables, format 1, and how a database with them is created."""

from __future__ import annotations

import os
import sqlite3

from leasectl.state.database import APPLICATION_ID, FORMAT, corrupt, make_folder, unlink
from leasectl.system.process import boot_id

SCHEMA = """
CREATE TABLE meta (
  fence INTEGER NOT NULL,          -- reserved up to this one; one counter for all
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
  closed INTEGER NOT NULL DEFAULT 0,    -- free, and not to be claimed: cordoned, or held back
  is_ended INTEGER NOT NULL DEFAULT 0,  -- its claim was ended by force: see the table ended
  holder_identity TEXT,
  ticket INTEGER,
  grant_number INTEGER,
  acquire_time REAL,
  renew_time REAL,
  lease_duration_seconds REAL,
  expires_at REAL,                 -- CLOCK_BOOTTIME; of a closed one, until when it is held back
  labels TEXT NOT NULL,
  CHECK (owner IS NULL OR NOT closed)
) WITHOUT ROWID;
CREATE INDEX resource_free ON resource (type, fence, name)
  WHERE owner IS NULL AND closed = 0;
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
CREATE TABLE suspended (           -- tickets that others may pass, as their waiters didn't come
  type TEXT NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (type, number)
) WITHOUT ROWID;
CREATE TABLE ranked_ticket (       -- tickets of queues where not all are alike; see `local.order`
  type TEXT NOT NULL,
  number INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  queued_at REAL NOT NULL,         -- CLOCK_BOOTTIME
  PRIMARY KEY (type, number)
) WITHOUT ROWID;
CREATE INDEX ranked_ticket_order ON ranked_ticket (type, priority, queued_at, number);
CREATE TABLE handle (
  id TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  type TEXT NOT NULL,              -- of the last grant; before the first, the first asked for
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
  watched INTEGER NOT NULL,        -- the keeper has something to do for it while not released
  adopted_claim TEXT,              -- whose claim it gives back without having got it itself
  served INTEGER NOT NULL DEFAULT 0,       -- made for a client of serve
  unconfirmed INTEGER NOT NULL DEFAULT 0,  -- that client may not know of it
  explicit_ttl INTEGER NOT NULL DEFAULT 0, -- else it is the backend's default
  types TEXT,                      -- several that would do, with commas, or that it needs, with +
  lost_reason TEXT NOT NULL DEFAULT '',    -- who took it by force, and why
  priority INTEGER NOT NULL DEFAULT 0,
  queued_at REAL,                  -- CLOCK_BOOTTIME; NULL once the machine was started again
  granted_at REAL,                 -- likewise
  release_between TEXT,            -- two times in seconds, with a comma; NULL where it is fixed
  where_properties TEXT NOT NULL DEFAULT '',  -- JSON; '' where nothing is asked of a resource
  on_reclaim TEXT NOT NULL DEFAULT 'keep',    -- what it answers when asked to give back
  joined INTEGER                   -- 1 where its first grant brought the resource into its pool
) WITHOUT ROWID;
CREATE INDEX handle_watched ON handle (id) WHERE watched = 1 AND state <> 'released';
CREATE INDEX handle_untold ON handle (id) WHERE waiter IS NOT NULL AND state = 'held';
CREATE TABLE handle_change (       -- which handles that the keeper sees to have changed, in order
  number INTEGER PRIMARY KEY,      -- without gaps, and the last one is never removed
  handle TEXT NOT NULL
);
CREATE TRIGGER watched_added AFTER INSERT ON handle WHEN new.watched BEGIN
  INSERT INTO handle_change (handle) VALUES (new.id);
END;
CREATE TRIGGER watched_changed AFTER UPDATE OF state, acquisition, ttl_seconds, explicit_ttl,
  guard, waiter, runner, watched ON handle
  WHEN (old.watched AND old.state <> 'released') OR (new.watched AND new.state <> 'released')
BEGIN
  INSERT INTO handle_change (handle) VALUES (new.id);
END;
CREATE TRIGGER watched_removed AFTER DELETE ON handle
  WHEN old.watched AND old.state <> 'released' BEGIN
  INSERT INTO handle_change (handle) VALUES (old.id);
END;
CREATE TABLE ended (               -- claims ended by force, and kept for their holders
  name TEXT PRIMARY KEY,
  type TEXT NOT NULL,
  claim_key TEXT NOT NULL,
  guard TEXT,                      -- whose end frees it
  reason TEXT NOT NULL             -- who ended it, and why
) WITHOUT ROWID;
CREATE TABLE pool_setting (        -- of pools that have other than the usual
  type TEXT PRIMARY KEY,
  pace_seconds REAL NOT NULL,
  burst INTEGER NOT NULL,
  aging_seconds REAL NOT NULL,
  paid_until REAL NOT NULL         -- CLOCK_BOOTTIME; see `leasectl.engines.rules.pace`
) WITHOUT ROWID;
CREATE TABLE event (               -- no index: to write is what has to be cheap, see event_log
  number INTEGER PRIMARY KEY,      -- without gaps, and the last one is never removed
  time REAL NOT NULL,              -- wall clock
  kind TEXT NOT NULL,
  backend TEXT NOT NULL,           -- '' for the embedded pools
  type TEXT NOT NULL,
  names TEXT NOT NULL,             -- with commas, likewise fences
  fences TEXT NOT NULL,
  handle TEXT NOT NULL,            -- '' where there is none, likewise the next but one
  acquisition INTEGER NOT NULL,
  holder_identity TEXT NOT NULL,
  count INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  ticket INTEGER NOT NULL,
  grant_number INTEGER NOT NULL,
  wait_seconds REAL,
  hold_seconds REAL,
  ended_by TEXT NOT NULL,
  reason TEXT NOT NULL,
  build_url TEXT NOT NULL
);
CREATE TABLE note (                -- what others have said of a claim
  name TEXT PRIMARY KEY,
  fence INTEGER NOT NULL,          -- of that claim; of any other it is none
  text TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE member (              -- what is so of a name beside its row in resource, if anything
  name TEXT PRIMARY KEY,
  expected TEXT,                   -- the type that it belongs to; NULL where nobody has said
  by_default INTEGER NOT NULL,
  cordoned INTEGER NOT NULL,
  moves_to TEXT,                   -- where its release takes it
  leaves INTEGER NOT NULL,         -- out of its pool
  process TEXT,                    -- it is in its pool for as long as this runs
  ttl_seconds REAL,                -- or for so long after it has joined last
  ends_at REAL,                    -- that is, CLOCK_BOOTTIME
  joined INTEGER NOT NULL,
  held_back_until REAL,            -- CLOCK_BOOTTIME; NULL for not at all
  properties TEXT NOT NULL,        -- JSON
  cordon TEXT                      -- JSON: who cordoned it, when, and why; NULL where not known
) WITHOUT ROWID;
CREATE INDEX member_special ON member (name) WHERE cordoned OR leaves OR moves_to IS NOT NULL
  OR process IS NOT NULL OR ends_at IS NOT NULL OR held_back_until IS NOT NULL;
CREATE TABLE expected_pattern (    -- where names belong that one matches
  pattern TEXT PRIMARY KEY,
  type TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE default_pool (        -- one row, or none
  type TEXT NOT NULL,
  grace_seconds REAL NOT NULL
);
CREATE TABLE stay (                -- in a pool on a server for as long as a process lives
  backend TEXT NOT NULL,
  settings TEXT NOT NULL,
  name TEXT NOT NULL,
  type TEXT NOT NULL,
  process TEXT NOT NULL,
  ttl_seconds REAL NOT NULL,       -- for which the server keeps it there without hearing of it
  PRIMARY KEY (backend, name)
) WITHOUT ROWID;
CREATE TABLE made_pool (           -- made on demand; a process sees to it that it goes
  backend TEXT NOT NULL,
  settings TEXT NOT NULL,
  type TEXT NOT NULL,
  process TEXT NOT NULL,
  PRIMARY KEY (backend, type, process)
) WITHOUT ROWID;
CREATE TABLE name_in_use (         -- of what a handle holds: in use, so it can't be given back
  handle TEXT NOT NULL,
  acquisition INTEGER NOT NULL,    -- void for any other
  name TEXT NOT NULL,
  until REAL,                      -- when that ended, CLOCK_BOOTTIME; NULL while it is so
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE mark_seen (           -- what others were seen to want back of what a handle holds
  handle TEXT NOT NULL,
  acquisition INTEGER NOT NULL,    -- void for any other
  name TEXT NOT NULL,
  id TEXT NOT NULL,                -- of the mark
  asked_by TEXT NOT NULL,
  ends_at REAL NOT NULL,           -- CLOCK_BOOTTIME
  is_ready INTEGER NOT NULL,       -- it was answered, or is about to be, that it can be freed
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE value (               -- what is kept beside pools
  key TEXT PRIMARY KEY,
  content BLOB NOT NULL,
  version INTEGER NOT NULL,        -- grows
  written_at REAL NOT NULL,        -- wall clock
  kept_until REAL                  -- likewise; NULL for good
);
CREATE TABLE follower (            -- who is woken by events
  pipe TEXT PRIMARY KEY,           -- in waiters/
  process TEXT NOT NULL
) WITHOUT ROWID;
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
CREATE TRIGGER lease_ended AFTER DELETE ON lease BEGIN
  DELETE FROM name_in_use WHERE handle = old.handle AND name = old.name;
  DELETE FROM mark_seen WHERE handle = old.handle AND name = old.name;
END;
CREATE TABLE timer (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,              -- '' for all that the handle holds
  acquisition INTEGER NOT NULL,    -- void for any other
  due REAL NOT NULL,               -- CLOCK_BOOTTIME
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE INDEX timer_due ON timer (due);
CREATE TABLE giving_back (         -- releases under way that are not yet certain
  backend TEXT NOT NULL,
  name TEXT NOT NULL,
  process TEXT NOT NULL,
  PRIMARY KEY (backend, name, process)
) WITHOUT ROWID;
CREATE TABLE keeper (
  pid_namespace INTEGER PRIMARY KEY,
  process TEXT NOT NULL,
  version TEXT NOT NULL            -- of leasectl, as it runs there
);
"""


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
        raise corrupt(path, "is missing, but its write-ahead log (-wal) exists")
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
        fill(db, fence=fence)
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()


def fill(db: sqlite3.Connection, *, fence: int) -> None:
    """Create the tables in an empty database.

    Args:
        db: The database, in autocommit mode.
        fence: Up to where fences are reserved.
    """
    db.executescript(f"BEGIN; {SCHEMA}")
    db.execute(
        "INSERT INTO meta (fence, boot_id, purge_cursor, place) VALUES (?, ?, '', ?)",
        (fence, boot_id(), os.urandom(8).hex()),
    )
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")
