"""Which pools that are made on demand processes use, so that none stays when they are killed.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from leasectl.model import Process, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import insert
from leasectl.typed.tuples import NamedTuple


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


class MadePools:
    """Those of one state directory.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def keep(self, pool: MadePool) -> None:
        """Have one be there."""
        row = {**pool._asdict(), "process": pool.process.encode()}
        insert(self._state.db, "made_pool", row, replace=True)

    def forget(self, pool: MadePool) -> None:
        """Have it not be there."""
        self._state.db.execute(
            "DELETE FROM made_pool WHERE backend = ? AND type = ? AND process = ?",
            (pool.backend, pool.type, pool.process.encode()),
        )

    def all(self) -> list[MadePool]:
        """All of them."""
        return [
            MadePool(row["backend"], row["settings"], row["type"], parse_process(row["process"]))
            for row in self._state.query("SELECT * FROM made_pool")
        ]

    def is_asked_for(self, pool: MadePool) -> bool:
        """Tell whether a handle holds something of it, or waits for that."""
        return bool(
            self._state.query(
                "SELECT 1 FROM handle WHERE type = ? AND backend = ? AND state <> 'released'",
                pool.type,
                pool.backend,
            )
        )
