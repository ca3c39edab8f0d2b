"""Read the database without opening the directory, for completion.

A user who types a command can't do anything about an error. So there are no errors: what can't be
read counts as empty.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
import urllib.parse
from typing import Any

from leasectl.errors import LeaseError
from leasectl.state.database import open_directory, require_opened

_PATIENCE_SECONDS = 1.0


def pool_types(directory: str) -> list[str]:
    """Return the types of the embedded pools, sorted."""
    return [pool_type for (pool_type,) in _read(directory, "SELECT type FROM pool ORDER BY type")]


def resource_names(directory: str) -> list[tuple[str, str]]:
    """Return the names in the embedded pools with their pools' types, sorted."""
    rows = _read(directory, "SELECT name, type FROM resource ORDER BY name")
    return [(name, pool_type) for name, pool_type in rows]


def held_names(directory: str) -> list[str]:
    """Return the names that handles of any backend hold, sorted."""
    return [name for (name,) in _read(directory, "SELECT DISTINCT name FROM lease ORDER BY name")]


def handle_ids(directory: str, *, released_too: bool) -> list[tuple[str, str]]:
    """Return ids and holder identities of handles, sorted."""
    where = "" if released_too else "WHERE state <> 'released'"
    rows = _read(directory, f"SELECT id, holder_identity FROM handle {where} ORDER BY id")
    return [(handle_id, identity) for handle_id, identity in rows]


def handle_types(directory: str, backend: str) -> list[str]:
    """Return the types that handles have asked a backend for, sorted."""
    sql = "SELECT DISTINCT type FROM handle WHERE backend = ? ORDER BY type"
    return [pool_type for (pool_type,) in _read(directory, sql, backend)]


def properties(directory: str) -> list[tuple[str, str]]:
    """Return keys and values of the properties in the embedded pools, sorted, each once."""
    rows = _read(directory, "SELECT properties FROM member WHERE properties NOT IN ('', '{}')")
    with contextlib.suppress(ValueError, TypeError):
        return sorted({pair for (text,) in rows for pair in dict(json.loads(text)).items()})
    return []


def values(directory: str, prefix: str) -> list[tuple[str, bytes, int, float]]:
    """Return the values whose keys have a prefix: key, content, version, time of the write."""
    rows = _read(
        directory,
        "SELECT key, content, version, written_at FROM value "
        "WHERE substr(key, 1, length(?)) = ? AND (kept_until IS NULL OR kept_until > ?)",
        prefix,
        prefix,
        time.time(),
    )
    return [(key, bytes(content), version, at) for key, content, version, at in rows]


def _read(directory: str, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    with contextlib.suppress(LeaseError, OSError, sqlite3.Error):
        directory = os.path.abspath(directory)
        path = os.path.join(directory, "state.db")
        uri = f"file:{urllib.parse.quote(path)}?mode=ro"
        with contextlib.ExitStack() as opened:
            dir_fd = open_directory(directory, create=False)
            opened.callback(os.close, dir_fd)
            database = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_SECONDS)
            opened.callback(database.close)
            rows = database.execute(sql, arguments).fetchall()
            require_opened(path, dir_fd, ("", "-wal", "-shm"))
            return rows
    return []
