"""A state directory whose backend is pools in memory, for verbs that any engine can be under."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import LOCAL, Context
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.memory.engine import MemoryEngine
from leasectl.engines.memory.sides import MemorySides
from leasectl.engines.memory.store import MemoryStore
from leasectl.leases.service import Service
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from tests.kit.support import ManualClock


class _WithRecords(PoolBackend):
    """Pools whose steps are part of the records' transactions, as the embedded ones' are."""

    state: State

    def atomic(self) -> AbstractContextManager[object]:
        return self.state.transaction()


class MemoryService(Service):
    """A service on pools in memory."""

    def __init__(self, state: State, clock: Clock) -> None:
        super().__init__(state, Context(LOCAL, caller=Caller("test@host", "host"), clock=clock))
        store = MemoryStore(clock=clock, lost=self.losses.tell)
        self.memory = _WithRecords(LOCAL, MemoryEngine(store), MemorySides(store), clock=clock)
        self.memory.state = state

    def backend_at(self, url: str, settings: str) -> PoolBackend:
        return self.memory


@pytest.fixture
def service(state_dir: Path, manual_clock: ManualClock) -> Iterator[MemoryService]:
    state = State.open(str(state_dir))
    service = MemoryService(state, manual_clock.clock)
    service.pools.create_pool("A", ["a-1", "a-2"])
    service.pools.create_pool("B", ["b-1"])
    yield service
    state.close()
