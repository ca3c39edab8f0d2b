"""Values under keys, kept beyond a boot; so their lifetime counts by the wall clock."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.local.store import LocalStore
from leasectl.engines.values import (
    LARGEST_CONTENT,
    Guard,
    Value,
    ValueChange,
    check_changes,
    is_content,
)
from leasectl.errors import NoRoom
from leasectl.state.event import Event, add_event
from leasectl.state.event_rows import LEFT_FOR_LEASES_BYTES


class LocalValues:
    """The values of one state directory.

    Args:
        store: The claims by which changes may be allowed.
    """

    largest_content = LARGEST_CONTENT

    def __init__(self, store: LocalStore) -> None:
        self._state = store.state
        self._store = store
        self._clock = store.clock

    def get(self, key: str) -> Value | None:
        return next(iter(self._query("key = :key", key=key)), None)

    def read(self, prefix: str) -> tuple[Value, ...]:
        found = self._query("substr(key, 1, length(:prefix)) = :prefix", prefix=prefix)
        return tuple(each for each in found if not is_content(each.key))

    def check_room(self) -> None:
        self._check_room_for(0)

    def tidy(self) -> None:
        """Do nothing: each `change` removes expired values."""

    def _query(self, which: str, **words: str) -> tuple[Value, ...]:
        rows = self._state.query(
            "SELECT key, content, version, written_at FROM value "
            f"WHERE {which} AND (kept_until IS NULL OR kept_until > :now) ORDER BY key",
            now=self._clock.wall(),
            **words,
        )
        return tuple(
            Value(row["key"], bytes(row["content"]), row["version"], row["written_at"])
            for row in rows
        )

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        check_changes(changes)
        with self._state.transaction() as db:
            db.execute("DELETE FROM value WHERE kept_until <= ?", (self._clock.wall(),))
            if not all(map(self._is_as_it_has_to_be, changes)) or not self._may(guard):
                return False
            for each in changes:
                self._write(each)
            if event is not None:
                add_event(self._state.events, event)
            if guard is not None and guard.frees:
                self._store.free(guard.claim_key, [guard.name], by="command")
            return True

    def _check_room_for(self, size: int) -> None:
        if not self._state.has_room_for(size):
            raise NoRoom(
                f"no room for {f'{size} bytes' if size else 'anything'} in "
                f"{self._state.directory}, as {LEFT_FOR_LEASES_BYTES >> 20} MiB of its disk are "
                "left to leases; free space there, or choose another directory with "
                "LEASECTL_STATE_DIR"
            )

    def _is_as_it_has_to_be(self, change: ValueChange) -> bool:
        if change.version is None:
            return True
        rows = self._state.query("SELECT version FROM value WHERE key = ?", change.key)
        return change.version == (rows[0]["version"] if rows else 0)

    def _may(self, guard: Guard | None) -> bool:
        if guard is None:
            return True
        claims = self._store.claims(guard.claim_key, [guard.name])
        return any(row["fence"] == guard.fence for row in claims)

    def _write(self, change: ValueChange) -> None:
        db = self._state.db
        if change.content is None:
            db.execute("DELETE FROM value WHERE key = ?", (change.key,))
            return
        if is_content(change.key):
            self._check_room_for(len(change.content))
        now, keep = self._clock.wall(), change.keep_seconds
        (version,) = self._state.draw_fences(1)  # versions grow and are unique
        db.execute(
            "INSERT OR REPLACE INTO value (key, content, version, written_at, kept_until) "
            "VALUES (?, ?, ?, ?, ?)",
            (change.key, change.content, version, now, None if keep is None else now + keep),
        )
