"""Which names the keeper has to keep in their pools, on servers, for as long as processes live.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from leasectl.model import Process, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import insert
from leasectl.typed.tuples import NamedTuple


class Stay(NamedTuple):
    """That a name is in a pool for as long as a process lives.

    Args:
        backend: The URL of the server.
        settings: How to talk to it, as `encode_settings` wrote it.
        name: The name.
        type: The type of the pool.
        process: The process.
        ttl_seconds: How long the server lets it stay without hearing of it.
    """

    backend: str
    settings: str
    name: str
    type: str
    process: Process
    ttl_seconds: float


class Stays:
    """Those of one state directory.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def keep(self, stay: Stay) -> None:
        """Have one be there, instead of what was known of the same name."""
        row = {**stay._asdict(), "process": stay.process.encode()}
        insert(self._state.db, "stay", row, replace=True)

    def forget(self, backend: str, name: str) -> None:
        """Have none be there of a name."""
        self._state.db.execute("DELETE FROM stay WHERE backend = ? AND name = ?", (backend, name))

    def forget_this(self, stay: Stay) -> None:
        """Have one not be there, unless it has become another."""
        self._state.db.execute(
            "DELETE FROM stay WHERE backend = ? AND name = ? AND process = ?",
            (stay.backend, stay.name, stay.process.encode()),
        )

    def all(self) -> list[Stay]:
        """All of them."""
        rows = self._state.query("SELECT * FROM stay")
        return [
            Stay(
                row["backend"],
                row["settings"],
                row["name"],
                row["type"],
                parse_process(row["process"]),
                row["ttl_seconds"],
            )
            for row in rows
        ]
