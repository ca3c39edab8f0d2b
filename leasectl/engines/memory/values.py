"""What is kept under keys in this process's memory, as `Values`."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.memory.store import MemoryStore
from leasectl.engines.values import (
    LARGEST_CONTENT,
    Guard,
    Value,
    ValueChange,
    check_changes,
    is_content,
)
from leasectl.state.event import Event
from leasectl.typed.tuples import NamedTuple


class _Content(NamedTuple):
    content: bytes
    version: int
    written_at: float
    until: float | None


class MemoryValues:
    """The values of one process; any number of threads may use it.

    Args:
        store: Its pools.
    """

    largest_content = LARGEST_CONTENT

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._contents: dict[str, _Content] = {}
        self._last_version = 0

    def get(self, key: str) -> Value | None:
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())
            found = self._contents.get(key)
            if found is None:
                return None
            return Value(key, found.content, found.version, found.written_at)

    def read(self, prefix: str) -> tuple[Value, ...]:
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())
            return tuple(
                Value(key, found.content, found.version, found.written_at)
                for key, found in sorted(self._contents.items())
                if key.startswith(prefix) and not is_content(key)
            )

    def check_room(self) -> None:
        """There is as much as this process may have."""

    def tidy(self) -> None:
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        check_changes(changes)
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())
            if not all(map(self._is_as_it_has_to_be, changes)) or not self._may(guard):
                return False
            for each in changes:
                self._write(each)
            if event is not None:
                self._store.events.add(event)
            if guard is not None and guard.frees:
                claims = self._store.claims(guard.claim_key)
                self._store.free([each for each in claims if each.name == guard.name], "command")
            return True

    def _is_as_it_has_to_be(self, change: ValueChange) -> bool:
        found = self._contents.get(change.key)
        return change.version in (None, 0 if found is None else found.version)

    def _may(self, guard: Guard | None) -> bool:
        if guard is None:
            return True
        return any(
            stock.name == guard.name
            and stock.lease is not None
            and stock.lease.fence == guard.fence
            for stock in self._store.claims(guard.claim_key)
        )

    def _write(self, change: ValueChange) -> None:
        if change.content is None:
            self._contents.pop(change.key, None)
            return
        now, keep = self._store.clock.wall(), change.keep_seconds
        self._last_version += 1
        until = None if keep is None else self._store.clock.elapsed() + keep
        self._contents[change.key] = _Content(change.content, self._last_version, now, until)

    def _drop_old(self, now: float) -> None:
        for key, found in list(self._contents.items()):
            if found.until is not None and found.until <= now:
                del self._contents[key]
