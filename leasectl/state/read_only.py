"""Read the database without opening the directory.

For completion: somebody in the middle of typing a command can't do anything about an error, so
there is none, and where nothing can be read, nothing is there.
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
    """The types of the embedded pools, in order."""
    return [pool_type for (pool_type,) in _read(directory, "SELECT type FROM pool ORDER BY type")]


def resource_names(directory: str) -> list[tuple[str, str]]:
    """The names in the embedded pools and the types of these, in order."""
    rows = _read(directory, "SELECT name, type FROM resource ORDER BY name")
    return [(name, pool_type) for name, pool_type in rows]


def held_names(directory: str) -> list[str]:
    """The names that handles of whatever backend hold, in order."""
    return [name for (name,) in _read(directory, "SELECT DISTINCT name FROM lease ORDER BY name")]


def handle_ids(directory: str, *, released_too: bool) -> list[tuple[str, str]]:
    """Ids and holder identities of handles, in order."""
    where = "" if released_too else "WHERE state <> 'released'"
    rows = _read(directory, f"SELECT id, holder_identity FROM handle {where} ORDER BY id")
    return [(handle_id, identity) for handle_id, identity in rows]


def handle_types(directory: str, backend: str) -> list[str]:
    """The types that handles have asked a backend for, in order."""
    sql = "SELECT DISTINCT type FROM handle WHERE backend = ? ORDER BY type"
    return [pool_type for (pool_type,) in _read(directory, sql, backend)]


def properties(directory: str) -> list[tuple[str, str]]:
    """Keys and values of what resources in the embedded pools are, in order, each once."""
    rows = _read(directory, "SELECT properties FROM member WHERE properties NOT IN ('', '{}')")
    with contextlib.suppress(ValueError, TypeError):
        return sorted({pair for (text,) in rows for pair in dict(json.loads(text)).items()})
    return []


def values(directory: str, prefix: str) -> list[tuple[str, bytes, int, float]]:
    """What is kept under keys that begin so: key, content, version, and when it was written."""
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
