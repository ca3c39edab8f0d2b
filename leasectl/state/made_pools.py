"""Which pools that are made on demand processes use, so that none stays when they are killed.

They stand among the values that are kept here, which no others' keys begin like.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from leasectl.model import Process, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import insert

_PREFIX = "made/"  # `Handles.any_watched` knows it, too


class MadePool(NamedTuple):
    """That a process makes a pool on demand, or uses it, and is to see to it that it goes.

    Args:
        backend: The URL of its store.
        settings: How to talk to that, as `encode_settings` wrote it.
        type: Its type.
        process: The process.
    """

    backend: str
    settings: str
    type: str
    process: Process

    @property
    def key(self) -> str:
        """Under which it stands."""
        return f"{_PREFIX}{self.type}/{self.process.encode()}"


class MadePools:
    """Those of one state directory.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def keep(self, pool: MadePool) -> None:
        """Have one be there."""
        row = {
            "key": pool.key,
            "content": json.dumps({"backend": pool.backend, "settings": pool.settings}).encode(),
            "version": 0,
            "written_at": 0.0,
            "kept_until": None,
        }
        insert(self._state.db, "value", row, replace=True)

    def forget(self, pool: MadePool) -> None:
        """Have it not be there."""
        self._state.db.execute("DELETE FROM value WHERE key = ?", (pool.key,))

    def all(self) -> list[MadePool]:
        """All of them."""
        rows = self._state.query(f"SELECT key, content FROM value WHERE key GLOB '{_PREFIX}*'")
        return [_parse(row["key"], row["content"]) for row in rows]

    def is_asked_for(self, pool: MadePool) -> bool:
        """Tell whether a handle holds something of it, or waits for that."""
        return bool(
            self._state.query(
                "SELECT 1 FROM handle WHERE type = ? AND backend = ? AND state <> 'released'",
                pool.type,
                pool.backend,
            )
        )


def _parse(key: str, content: bytes) -> MadePool:
    _, pool_type, process = key.split("/", 2)
    record = json.loads(content)
    return MadePool(record["backend"], record["settings"], pool_type, parse_process(process))
