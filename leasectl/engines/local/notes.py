"""Notes at claims.

A note is of the claim with its fence; one that is left of an earlier claim is none, and the next
takes its place. So ending a claim has nothing to do with it. Whoever notes something wakes the
keeper and the `run` of the handle, and whoever frees something for a note tells its record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from leasectl.engines.contract import LostListener
from leasectl.engines.local.store import LocalStore
from leasectl.engines.notes import Note, NoteChange, NoteWatch
from leasectl.model import ReleasedBy
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.event_log import StateEventWatch
from leasectl.state.uses import Uses
from leasectl.system.clock import Clock

_NOTED = (
    "SELECT resource.type, resource.name, resource.fence, owner, text FROM resource "
    "JOIN note ON note.name = resource.name AND note.fence = resource.fence "
    "WHERE owner IS NOT NULL AND NOT is_ended"
)


class LocalNotes:
    """The notes of one state directory.

    Args:
        state: Where they are kept.
        store: The claims that they are at.
        freed: Told, inside the transaction, of what was freed for a note.
        clock: Where times come from.
    """

    def __init__(
        self, state: State, store: LocalStore, *, freed: LostListener, clock: Clock
    ) -> None:
        self._state = state
        self._store = store
        self._freed = freed
        self._clock = clock

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        with self._state.transaction():
            self._store.pool(pool_type)
            self._store.expire(pool_type)
            rows = self._state.query(f"{_NOTED} AND resource.type = ?", pool_type)
        return _notes(rows)

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        with self._state.transaction():
            self._store.claims(claim_key, None)
            rows = self._state.query(f"{_NOTED} AND owner = ?", claim_key)
        return _notes(rows)

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        with self._state.transaction():
            done = tuple(map(self._change, changes))
            self._wake_watches()
            if any(done):
                keeper_process.wake(self._state)
            return done

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        with self._state.transaction():
            freed: list[str] = []
            for note in notes:
                claim_key = self._claim_key(note.type, note.name, note.fence, note.text)
                if claim_key is not None:
                    freed += self._store.free(claim_key, [note.name], by=by)
                    self._freed(claim_key, [note.name])
            return tuple(freed)

    def watch(self, pool_type: str) -> NoteWatch:
        return StateEventWatch(self._state)

    def _wake_watches(self) -> None:
        """Whoever follows what happens here hears of notes as well; ends of claims are events."""
        for (pipe,) in self._state.query("SELECT pipe FROM follower"):
            self._state.wake(self._state.waiter_pipe(pipe))

    def _change(self, change: NoteChange) -> bool:
        claim_key = self._claim_key(change.type, change.name, change.fence, change.before)
        if claim_key is None:
            return False
        self._have_seen(claim_key)
        db = self._state.db
        if change.after is None:
            db.execute("DELETE FROM note WHERE name = ?", (change.name,))
        else:
            db.execute(
                "INSERT OR REPLACE INTO note (name, fence, text) VALUES (?, ?, ?)",
                (change.name, change.fence, change.after),
            )
        if change.told:
            self._tell(claim_key, change)
        return True

    def _tell(self, claim_key: str, change: NoteChange) -> None:
        (claim,) = self._store.claims(claim_key, [change.name])
        self._state.events.add(
            self._clock.wall(),
            "noted",
            change.type,
            [change.name],
            [change.fence],
            handle=claim_key,
            acquisition=claim["acquisition"] or 0,
            holder=claim["holder_identity"] or "",
            count=claim["count"] or 1,
            priority=claim["priority"] or 0,
            ticket=claim["ticket"] or 0,
            grant=claim["grant_number"] or 0,
            reason=change.told,
        )

    def _have_seen(self, handle_id: str) -> None:
        """Have a note be seen by whoever answers for a handle."""
        Uses(self._state).have_watched([handle_id])
        self._state.wake(self._state.runner_pipe(handle_id))

    def _claim_key(self, pool_type: str, name: str, fence: int, text: str | None) -> str | None:
        """Whose claim that is, if it is good and that is noted at it."""
        self._store.expire(pool_type)
        rows = self._state.query(
            "SELECT owner, text FROM resource "
            "LEFT JOIN note ON note.name = resource.name AND note.fence = resource.fence "
            "WHERE resource.name = ? AND resource.type = ? AND resource.fence = ? "
            "AND owner IS NOT NULL AND NOT is_ended",
            name,
            pool_type,
            fence,
        )
        return next((row["owner"] for row in rows if row["text"] == text), None)


def noted(state: State) -> dict[str, tuple[Note, ...]]:
    """All that is noted in a state directory, by claim key; also of what has expired by now."""
    rows = state.query(_NOTED)
    keys = dict.fromkeys(row["owner"] for row in rows)
    return {key: _notes([row for row in rows if row["owner"] == key]) for key in keys}


def _notes(rows: Sequence[sqlite3.Row]) -> tuple[Note, ...]:
    return tuple(
        Note(row["type"], row["name"], row["fence"], row["text"])
        for row in sorted(rows, key=lambda each: each["name"])
    )
