"""Notes at claims.

A note belongs to the claim with its fence: a note of an earlier claim doesn't count, and the next
note replaces it. So the end of a claim doesn't have to remove its note. A process that writes a
note wakes the keeper and the `run` of the handle. One that frees a resource for a note tells its
record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from leasectl.engines.local.store import LocalStore, facts_of
from leasectl.engines.notes import Note, NoteChange, NoteWatch
from leasectl.model import ReleasedBy
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.event_log import StateEventWatch
from leasectl.state.uses import Uses

_NOTED = (
    "SELECT resource.type, resource.name, resource.fence, owner, text FROM resource "
    "JOIN note ON note.name = resource.name AND note.fence = resource.fence "
    "WHERE owner IS NOT NULL AND NOT is_ended"
)


class LocalNotes:
    """The notes of one state directory.

    Args:
        store: The claims that they are at; its listener is also told what was freed for a note.
    """

    def __init__(self, store: LocalStore) -> None:
        self._state = store.state
        self._store = store

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
            # Those who follow events follow notes as well; ends of claims are events.
            for (pipe,) in self._state.query("SELECT pipe FROM follower"):
                self._state.wake(self._state.waiter_pipe(pipe))
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
                    self._store.lost(claim_key, [note.name])
            return tuple(freed)

    def watch(self, pool_type: str) -> NoteWatch:
        return StateEventWatch(self._state)

    def _change(self, change: NoteChange) -> bool:
        claim_key = self._claim_key(change.type, change.name, change.fence, change.before)
        if claim_key is None:
            return False
        # Wake the process that answers for the handle.
        Uses(self._state).have_watched([claim_key])
        self._state.wake(self._state.runner_pipe(claim_key))
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
            self._store.clock.wall(),
            "noted",
            change.type,
            [change.name],
            [change.fence],
            **facts_of(claim),
            count=claim["count"] or 1,
            reason=change.told,
        )

    def _claim_key(self, pool_type: str, name: str, fence: int, text: str | None) -> str | None:
        """Return the claim key of a valid claim with that note; None if there is none."""
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
    """Return all notes in a state directory, by claim key, also at expired claims."""
    by_key: dict[str, list[sqlite3.Row]] = {}
    for row in state.query(_NOTED):
        by_key.setdefault(row["owner"], []).append(row)
    return {key: _notes(rows) for key, rows in by_key.items()}


def _notes(rows: Sequence[sqlite3.Row]) -> tuple[Note, ...]:
    return tuple(
        Note(row["type"], row["name"], row["fence"], row["text"])
        for row in sorted(rows, key=lambda each: each["name"])
    )
