"""A store that undoes nothing, as a server's: embedded pools in memory, one step after the other.

Each step is a transaction of its own, and the store knows of a request what a waiter tells it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from sqlite3 import Connection, Row

from leasectl.engines.contract import LostListener, Outlook, PoolWaiter
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.waiter import LocalWaiter, WaitPipes
from leasectl.model import Claimant, Lease, ReleasedBy
from leasectl.state.in_memory import MemoryState, record
from leasectl.system.clock import Clock
from leasectl.system.process_watch import IdlePidfds


def nobody_is_told(claim_key: str, names: Sequence[str]) -> None:
    """A listener for tests that are about no loss."""


class _Shared(MemoryState):
    """Threads take turns."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.RLock()

    def transaction(self) -> AbstractContextManager[Connection]:
        return self._in_turn()

    @contextmanager
    def _in_turn(self) -> Iterator[Connection]:
        with self._turn, super().transaction() as db:
            yield db

    def query(self, sql: str, *values: object, **named: object) -> list[Row]:
        with self._turn:
            return super().query(sql, *values, **named)


class MadeUpStore:
    """What is in such a store.

    Args:
        clock: Where times come from.
        lost: Told of claims that expired or were taken by force.

    Attributes:
        state: Its tables.
        sides, pools, members: Its other sides.
    """

    def __init__(self, clock: Clock, lost: LostListener = nobody_is_told) -> None:
        self.clock = clock
        self.lost = lost
        self.state = _Shared()
        self.sides = LocalSides(self.state, lost=lost, clock=clock)
        self.pools, self.members = self.sides.pools, self.sides.members


class MadeUpEngine(LocalEngine):
    """Such a store as an engine."""

    undoes = False

    def __init__(self, store: MadeUpStore) -> None:
        super().__init__(store.state, lost=store.lost, clock=store.clock)
        self.made_up = store

    def atomic(self) -> AbstractContextManager[object]:
        return nullcontext()

    def waiter(self, claimant: Claimant, *, until: float | None) -> LocalWaiter:
        return MadeUpWaiter(self.made_up, claimant)

    def claim_all(self, waiters: Sequence[PoolWaiter]) -> tuple[Lease, ...]:
        with self._state.transaction():
            return super().claim_all(waiters)

    def withdraw(self, claim_key: str, why: str = "") -> None:
        with self._state.transaction():
            super().withdraw(claim_key, why)

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        with self._state.transaction():
            return super().free(claim_key, names, by=by)

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        with self._state.transaction():
            return super().renew(claim_key, ttl_seconds=ttl_seconds)


class MadeUpWaiter(LocalWaiter):
    """A waiter at such a store."""

    has_place = True

    def __init__(self, store: MadeUpStore, claimant: Claimant) -> None:
        self._state, self._claimant = store.state, claimant
        super().__init__(
            LocalStore(store.state, lost=store.lost, clock=store.clock),
            claimant,
            WaitPipes(store.state).get(),
            pidfds=IdlePidfds(),
        )

    def check(self) -> None:
        with self._state.transaction():
            super().check()

    def enqueue(self, *, again: bool = False, beside: PoolWaiter | None = None) -> None:
        with self._state.transaction():
            record(self._state, self._claimant)
            super().enqueue(again=again, beside=beside)

    def look(self) -> Outlook:
        with self._state.transaction():
            return super().look()

    def park(self, is_parked: bool) -> None:
        with self._state.transaction():
            super().park(is_parked)

    def claim(self) -> Outlook:
        with self._state.transaction():
            return super().claim()

    def dequeue(self, why: str = "") -> None:
        with self._state.transaction():
            super().dequeue(why)
            if self._own is not None:
                sql = "SELECT name FROM resource WHERE owner = ? AND type = ? AND ticket = ?"
                own, wanted = self._own.number, self._claimant.request.type
                rows = self._state.query(sql, self._claimant.claim_key, wanted, own)
                names = [row["name"] for row in rows]
                self._store.free(self._claimant.claim_key, names, by="command")
