"""Notes at the claims of this process's pools, as `Notes`."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.memory.events import MemoryEventWatch
from leasectl.engines.memory.stock import Stock
from leasectl.engines.memory.store import MemoryStore
from leasectl.engines.notes import Note, NoteChange
from leasectl.model import ReleasedBy


class MemoryNotes:
    """The notes of one process; any number of threads may use it.

    Args:
        store: What is in its pools.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        with self._store.lock:
            pool = self._store.pool(pool_type)
            self._store.expire(pool)
            return _noted([pool.stock[name] for name in sorted(pool.held)])

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        with self._store.lock:
            return _noted(self._store.claims(claim_key))

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        with self._store.lock:
            done = tuple(map(self._change, changes))
            self._store.events.wake()
            return done

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        with self._store.lock:
            found = [self._claimed(note.name, note.fence, note.text) for note in notes]
            freed = [stock for stock in found if stock is not None]
            self._store.free(freed, by)
            return tuple(stock.name for stock in freed)

    def watch(self, pool_type: str) -> MemoryEventWatch:
        return self._store.events.watch()

    def _change(self, change: NoteChange) -> bool:
        stock = self._claimed(change.name, change.fence, change.before)
        if stock is not None:
            stock.note = change.after
            self._store.events.noted(stock, change.told)
        return stock is not None

    def _claimed(self, name: str, fence: int, text: str | None) -> Stock | None:
        """The resource of a claim that is good, and of which that is noted."""
        stock = self._store.stock_of(name)
        if stock is None or stock.claim_key is None or stock.lease is None:
            return None
        is_good = stock in self._store.claims(stock.claim_key)
        return stock if is_good and (stock.lease.fence, stock.note) == (fence, text) else None


def _noted(stocks: Sequence[Stock]) -> tuple[Note, ...]:
    return tuple(
        Note(stock.pool.type, stock.name, stock.lease.fence, stock.note)
        for stock in stocks
        if stock.lease is not None and stock.note is not None
    )
