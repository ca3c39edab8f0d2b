"""The engine in memory.

It runs the pool algorithm where nothing else should matter, as in its own tests: threads are the
participants, time is whatever the given clock says, and the death of a holder is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from leasectl.engines.event_words import WAITER_DIED, WITHDRAWN
from leasectl.engines.memory.store import MemoryStore
from leasectl.engines.memory.waiter import MemoryWaiter, Waker
from leasectl.model import Claimant, ReleasedBy
from leasectl.system.wakeup import Wakeup


class MemoryEngine:
    """The pools of one process, as `Engine`; any number of threads may use it.

    Args:
        store: What is in them.
        new_waker: Makes what wakes a waiter.
    """

    undoes = False

    def __init__(self, store: MemoryStore, *, new_waker: Callable[[], Waker] = Wakeup) -> None:
        self._store = store
        self._new_waker = new_waker

    def end_session(self, claim_key: str) -> None:
        """Declare that a holder has died: its ticket and its claims go with it."""
        with self._store.lock:
            self.withdraw(claim_key, WAITER_DIED)
            self.free(claim_key, by="guard")

    def atomic(self) -> AbstractContextManager[object]:
        return self._store.lock

    def waiter(self, claimant: Claimant, *, until: float | None) -> MemoryWaiter:
        return MemoryWaiter(self._store, claimant, self._new_waker)

    def withdraw(self, claim_key: str, why: str = "") -> None:
        with self._store.lock:
            tickets = self._store.tickets
            tickets.send_away(tickets.places_of(claim_key), why or WITHDRAWN)

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        with self._store.lock:
            freed = [
                stock
                for stock in self._store.claims(claim_key)
                if names is None or stock.name in names
            ]
            kept = self._store.kept(claim_key) if names is None else []
            self._store.free([*freed, *kept], by)
            return tuple(stock.name for stock in freed)

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        with self._store.lock:
            held = self._store.claims(claim_key)
            for stock in held:
                self._store.renew(stock, ttl_seconds=ttl_seconds)
            return tuple(stock.name for stock in held)
