"""What pools in memory have beside leases, as `Sides`."""

from __future__ import annotations

from leasectl.engines.memory.events import MemoryEvents
from leasectl.engines.memory.members import MemoryMembers
from leasectl.engines.memory.notes import MemoryNotes
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.store import MemoryStore
from leasectl.engines.memory.values import MemoryValues


class MemorySides:
    """The other sides of one process's pools.

    Args:
        store: What is in them.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    @property
    def pools(self) -> MemoryPools:
        return MemoryPools(self._store)

    @property
    def events(self) -> MemoryEvents:
        return self._store.events

    @property
    def members(self) -> MemoryMembers:
        return MemoryMembers(self._store)

    @property
    def notes(self) -> MemoryNotes:
        return MemoryNotes(self._store)

    @property
    def values(self) -> MemoryValues:
        return MemoryValues(self._store)
