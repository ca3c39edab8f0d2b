"""The tables as earlier versions made them, in their own words: never to be changed."""

from __future__ import annotations

SCHEMA_1 = """
CREATE TABLE meta (
  fence INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  purge_cursor TEXT NOT NULL
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
  fence INTEGER NOT NULL,
  lease_transitions INTEGER NOT NULL,
  owner TEXT,
  holder_identity TEXT,
  ticket INTEGER,
  grant_number INTEGER,
  acquire_time REAL,
  renew_time REAL,
  lease_duration_seconds REAL,
  expires_at REAL,
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
  pipe TEXT NOT NULL,
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
  released_at REAL,
  lost INTEGER NOT NULL,
  settings TEXT NOT NULL,
  lost_replies INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  watched INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX handle_watched ON handle (id) WHERE watched = 1 AND state <> 'released';
CREATE INDEX handle_untold ON handle (id) WHERE waiter IS NOT NULL AND state = 'held';
CREATE TABLE lease (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  ticket INTEGER NOT NULL,
  grant_number INTEGER NOT NULL,
  acquire_time REAL NOT NULL,
  renew_time REAL NOT NULL,
  lease_transitions INTEGER NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE timer (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  due REAL NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE giving_back (
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

SCHEMA_2 = """
CREATE TABLE meta (
  fence INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  purge_cursor TEXT NOT NULL,
  place TEXT NOT NULL
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
  fence INTEGER NOT NULL,
  lease_transitions INTEGER NOT NULL,
  owner TEXT,
  holder_identity TEXT,
  ticket INTEGER,
  grant_number INTEGER,
  acquire_time REAL,
  renew_time REAL,
  lease_duration_seconds REAL,
  expires_at REAL,
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
  pipe TEXT NOT NULL,
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
  released_at REAL,
  lost INTEGER NOT NULL,
  settings TEXT NOT NULL,
  lost_replies INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  watched INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX handle_watched ON handle (id) WHERE watched = 1 AND state <> 'released';
CREATE INDEX handle_untold ON handle (id) WHERE waiter IS NOT NULL AND state = 'held';
CREATE TABLE lease (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  ticket INTEGER NOT NULL,
  grant_number INTEGER NOT NULL,
  acquire_time REAL NOT NULL,
  renew_time REAL NOT NULL,
  lease_transitions INTEGER NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE timer (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  due REAL NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE giving_back (
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

SCHEMA_3 = """
CREATE TABLE meta (
  fence INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  purge_cursor TEXT NOT NULL,
  place TEXT NOT NULL
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
  fence INTEGER NOT NULL,
  lease_transitions INTEGER NOT NULL,
  owner TEXT,
  holder_identity TEXT,
  ticket INTEGER,
  grant_number INTEGER,
  acquire_time REAL,
  renew_time REAL,
  lease_duration_seconds REAL,
  expires_at REAL,
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
  pipe TEXT NOT NULL,
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
  released_at REAL,
  lost INTEGER NOT NULL,
  settings TEXT NOT NULL,
  lost_replies INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  watched INTEGER NOT NULL,
  adopted_claim TEXT,
  served INTEGER NOT NULL DEFAULT 0,
  unconfirmed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX handle_watched ON handle (id) WHERE watched = 1 AND state <> 'released';
CREATE INDEX handle_untold ON handle (id) WHERE waiter IS NOT NULL AND state = 'held';
CREATE TABLE lease (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  ticket INTEGER NOT NULL,
  grant_number INTEGER NOT NULL,
  acquire_time REAL NOT NULL,
  renew_time REAL NOT NULL,
  lease_transitions INTEGER NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE timer (
  handle TEXT NOT NULL,
  name TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  due REAL NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE giving_back (
  backend TEXT NOT NULL,
  name TEXT NOT NULL,
  process TEXT NOT NULL,
  PRIMARY KEY (backend, name, process)
) WITHOUT ROWID;
CREATE TABLE keeper (
  pid_namespace INTEGER PRIMARY KEY,
  process TEXT NOT NULL
);
CREATE TABLE keeper_version (
  pid_namespace INTEGER PRIMARY KEY,
  process TEXT NOT NULL,
  version TEXT NOT NULL,
  asked TEXT NOT NULL
);
"""

_LAST_OF_3 = "  unconfirmed INTEGER NOT NULL DEFAULT 0\n"
SCHEMA_4 = SCHEMA_3.replace(
    _LAST_OF_3, _LAST_OF_3[:-1] + ",\n  explicit_ttl INTEGER NOT NULL DEFAULT 0\n"
)

_LAST_OF_4 = "  explicit_ttl INTEGER NOT NULL DEFAULT 0\n"
SCHEMA_5 = SCHEMA_4.replace(_LAST_OF_4, _LAST_OF_4[:-1] + ",\n  types TEXT\n")

SCHEMA_6 = (
    SCHEMA_5
    + """
CREATE TABLE suspended (
  type TEXT NOT NULL,
  number INTEGER NOT NULL,
  owner TEXT NOT NULL,
  PRIMARY KEY (type, number)
) WITHOUT ROWID;
"""
)

_LAST_OF_6 = "  types TEXT\n"
SCHEMA_7 = (
    SCHEMA_6.replace(_LAST_OF_6, _LAST_OF_6[:-1] + ",\n  lost_reason TEXT NOT NULL DEFAULT ''\n")
    + """
CREATE TABLE ended (
  name TEXT PRIMARY KEY,
  type TEXT NOT NULL,
  claim_key TEXT NOT NULL,
  guard TEXT,
  reason TEXT NOT NULL
) WITHOUT ROWID;
"""
)

_LAST_OF_7 = "  lost_reason TEXT NOT NULL DEFAULT ''\n"
SCHEMA_8 = (
    SCHEMA_7.replace(
        _LAST_OF_7,
        _LAST_OF_7[:-1]
        + """,
  priority INTEGER NOT NULL DEFAULT 0,
  queued_at REAL,
  granted_at REAL,
  release_between TEXT
""",
    )
    + """
CREATE TABLE pool_setting (
  type TEXT PRIMARY KEY,
  pace_seconds REAL NOT NULL,
  burst INTEGER NOT NULL,
  aging_seconds REAL NOT NULL,
  paid_until REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE ranked_ticket (
  type TEXT NOT NULL,
  number INTEGER NOT NULL,
  owner TEXT NOT NULL,
  priority INTEGER NOT NULL,
  queued_at REAL NOT NULL,
  PRIMARY KEY (type, number)
) WITHOUT ROWID;
CREATE INDEX ranked_ticket_order ON ranked_ticket (type, priority, queued_at, number);
CREATE TABLE event (
  number INTEGER PRIMARY KEY,
  time REAL NOT NULL,
  kind TEXT NOT NULL,
  backend TEXT NOT NULL,
  type TEXT NOT NULL,
  names TEXT NOT NULL,
  fences TEXT NOT NULL,
  handle TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  holder_identity TEXT NOT NULL,
  count INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  ticket INTEGER NOT NULL,
  grant_number INTEGER NOT NULL,
  wait_seconds REAL,
  hold_seconds REAL,
  ended_by TEXT NOT NULL,
  reason TEXT NOT NULL
);
CREATE TABLE follower (
  pipe TEXT PRIMARY KEY,
  process TEXT NOT NULL
) WITHOUT ROWID;
"""
)

_LAST_OF_8 = "  release_between TEXT\n"
SCHEMA_9 = (
    SCHEMA_8.replace(
        _LAST_OF_8,
        _LAST_OF_8[:-1]
        + """,
  where_properties TEXT NOT NULL DEFAULT '',
  on_reclaim TEXT NOT NULL DEFAULT 'keep',
  joined INTEGER
""",
    )
    + """
CREATE TABLE note (
  name TEXT PRIMARY KEY,
  fence INTEGER NOT NULL,
  text TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE member (
  name TEXT PRIMARY KEY,
  expected TEXT,
  by_default INTEGER NOT NULL,
  cordoned INTEGER NOT NULL,
  moves_to TEXT,
  leaves INTEGER NOT NULL,
  process TEXT,
  ttl_seconds REAL,
  ends_at REAL,
  joined INTEGER NOT NULL,
  held_back_until REAL,
  properties TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX member_special ON member (name) WHERE cordoned OR leaves OR moves_to IS NOT NULL
  OR process IS NOT NULL OR ends_at IS NOT NULL OR held_back_until IS NOT NULL;
CREATE TABLE expected_pattern (
  pattern TEXT PRIMARY KEY,
  type TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE default_pool (
  type TEXT NOT NULL,
  grace_seconds REAL NOT NULL
);
CREATE TABLE stay (
  backend TEXT NOT NULL,
  settings TEXT NOT NULL,
  name TEXT NOT NULL,
  type TEXT NOT NULL,
  process TEXT NOT NULL,
  ttl_seconds REAL NOT NULL,
  PRIMARY KEY (backend, name)
) WITHOUT ROWID;
CREATE TABLE made_pool (
  backend TEXT NOT NULL,
  settings TEXT NOT NULL,
  type TEXT NOT NULL,
  process TEXT NOT NULL,
  PRIMARY KEY (backend, type, process)
) WITHOUT ROWID;
CREATE TABLE name_in_use (
  handle TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  name TEXT NOT NULL,
  until REAL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE mark_seen (
  handle TEXT NOT NULL,
  acquisition INTEGER NOT NULL,
  name TEXT NOT NULL,
  id TEXT NOT NULL,
  asked_by TEXT NOT NULL,
  ends_at REAL NOT NULL,
  is_ready INTEGER NOT NULL,
  PRIMARY KEY (handle, name)
) WITHOUT ROWID;
CREATE TABLE value (
  key TEXT PRIMARY KEY,
  content BLOB NOT NULL,
  version INTEGER NOT NULL,
  written_at REAL NOT NULL,
  kept_until REAL
);
CREATE TRIGGER lease_ended AFTER DELETE ON lease BEGIN
  DELETE FROM name_in_use WHERE handle = old.handle AND name = old.name;
  DELETE FROM mark_seen WHERE handle = old.handle AND name = old.name;
END;
"""
)

BY_VERSION = dict(
    enumerate(
        (
            SCHEMA_1,
            SCHEMA_2,
            SCHEMA_3,
            SCHEMA_4,
            SCHEMA_5,
            SCHEMA_6,
            SCHEMA_7,
            SCHEMA_8,
            SCHEMA_9,
        ),
        1,
    )
)
