"""What the keeper looks after."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from leasectl.errors import CorruptState, LeaseError
from leasectl.model import Handle, Process, parse_process
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.rows import insert


class Stay(NamedTuple):
    """A membership that lasts as long as a process lives.

    Args:
        backend: The URL of the server.
        settings: How to talk to it, as `encode_settings` wrote it.
        name: The name.
        type: The type of the pool.
        process: The process.
        ttl_seconds: How long the server keeps the membership without a renewal.
    """

    backend: str
    settings: str
    name: str
    type: str
    process: Process
    ttl_seconds: float


class Stays:
    """The kept memberships of one state directory.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def keep(self, stay: Stay) -> None:
        """Record a membership, in place of an earlier one of the same name."""
        row = {**stay._asdict(), "process": stay.process.encode()}
        insert(self._state.db, "stay", row, replace=True)

    def forget(self, backend: str, name: str) -> None:
        """Remove the membership of a name."""
        self._state.db.execute("DELETE FROM stay WHERE backend = ? AND name = ?", (backend, name))

    def forget_this(self, stay: Stay) -> None:
        """Remove a membership, unless it has changed."""
        self._state.db.execute(
            "DELETE FROM stay WHERE backend = ? AND name = ? AND process = ?",
            (stay.backend, stay.name, stay.process.encode()),
        )

    def all(self) -> list[Stay]:
        """Return all of them."""
        rows = self._state.read(
            "SELECT backend, settings, name, type, process, ttl_seconds FROM stay"
        )
        return [
            Stay(backend, settings, name, pool_type, parse_process(process), ttl)
            for backend, settings, name, pool_type, process, ttl in rows
        ]


class MadePool(NamedTuple):
    """A process that creates or uses a pool on demand, and is responsible for its removal.

    Args:
        backend: The URL of its store.
        settings: How to talk to the store, as `encode_settings` wrote it.
        type: The type of the pool.
        process: The process.
    """

    backend: str
    settings: str
    type: str
    process: Process


class MadePools:
    """The pools on demand of one state directory.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def keep(self, pool: MadePool) -> None:
        """Record a pool."""
        row = {**pool._asdict(), "process": pool.process.encode()}
        insert(self._state.db, "made_pool", row, replace=True)

    def forget(self, pool: MadePool) -> None:
        """Remove the record of a pool."""
        self._state.db.execute(
            "DELETE FROM made_pool WHERE backend = ? AND type = ? AND process = ?",
            (pool.backend, pool.type, pool.process.encode()),
        )

    def all(self) -> list[MadePool]:
        """Return all of them."""
        rows = self._state.read("SELECT backend, settings, type, process FROM made_pool")
        return [
            MadePool(backend, settings, pool_type, parse_process(process))
            for backend, settings, pool_type, process in rows
        ]

    def is_asked_for(self, pool: MadePool) -> bool:
        """Return whether a handle holds a lease of it, or waits for one."""
        return bool(
            self._state.query(
                "SELECT 1 FROM handle WHERE type = ? AND backend = ? AND state <> 'released'",
                pool.type,
                pool.backend,
            )
        )


# How many of the last notes are kept for keepers that haven't read them; there may be several.
_KEPT = 1000


class Changes(NamedTuple):
    """The changes since the last look.

    Args:
        handles: By id, as they are now, without their leases; None for one that the keeper no
            longer looks after.
        are_all: There are no others: the keeper looks after no handle that is missing here.
    """

    handles: dict[str, Handle | None]
    are_all: bool


class WatchedHandles:
    """The handles that a keeper looks after, and their changes from one look to the next.

    Args:
        state: The opened state directory.

    Attributes:
        damaged: Why records couldn't be read at the last look, by the handle's id.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._handles = Handles(state)
        self.damaged: dict[str, CorruptState] = {}
        self._seen: int | None = None  # the number of the last note that was read
        self._trimmed = 0

    def changes(self) -> Changes:
        """Read the changes since the last call; everything at the first call.

        A damaged record is left out, and read again by the next call: it keeps no other handle from
        being released.

        Raises:
            CorruptState: The database is damaged. The next call reads the same again.
        """
        notes = self._state.query(
            "SELECT number, handle FROM handle_change WHERE number >= ? ORDER BY number",
            self._seen or 0,
        )
        last = notes[-1]["number"] if notes else 0
        # Notes are numbered in order: if the last one read is still there, no later one is missing.
        if self._seen is None or not notes or notes[0]["number"] != self._seen:
            found, damaged = self._read_all()
            changes = Changes(found, are_all=True)
        else:
            found, damaged = self._read([*self.damaged, *(note["handle"] for note in notes[1:])])
            changes = Changes(found, are_all=False)
        self.damaged = damaged
        self._seen = last
        return changes

    def _read_all(self) -> tuple[dict[str, Handle | None], dict[str, CorruptState]]:
        try:
            return {each.id: each for each in self._handles.watched()}, {}
        except CorruptState:
            return self._read(self._handles.watched_ids())

    def _read(self, ids: Iterable[str]) -> tuple[dict[str, Handle | None], dict[str, CorruptState]]:
        """Read records one by one; return those that can be read, and the errors of others."""
        found: dict[str, Handle | None] = {}
        damaged: dict[str, CorruptState] = {}
        for each in dict.fromkeys(ids):
            try:
                found[each] = self._handles.load_watched(each)
            except CorruptState as error:
                damaged[each] = error
        return found, damaged

    def read_all_again(self) -> None:
        """Make the next call of `changes` return everything again."""
        self._seen = None

    def trim(self) -> None:
        """Remove notes that were read long ago, once there are many."""
        if self._seen is None or self._seen - self._trimmed < 2 * _KEPT:
            return
        with contextlib.suppress(LeaseError), self._state.transaction() as db:
            db.execute("DELETE FROM handle_change WHERE number <= ?", (self._seen - _KEPT,))
            self._trimmed = self._seen - _KEPT
