"""The embedded pool as an engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from leasectl.engines.contract import LostListener, PoolWaiter
from leasectl.engines.local.store import LocalStore
from leasectl.model import Claimant, Lease, ReleasedBy
from leasectl.state.directory import State
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.local.waiter import LocalWaiter, WaitPipes
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import EventLog, Members, PoolAdmin
    from leasectl.engines.values import Values
    from leasectl.system.process_watch import IdlePidfds


class LocalEngine:
    """The pools of one state directory.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Called, inside the transaction, with claims that expired or were taken by force.
    """

    undoes = True

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self._state = state
        self._store = LocalStore(state, lost=lost, clock=clock)
        self._queues = self._store.queues
        self._pipes: WaitPipes | None = None
        self._pidfds: IdlePidfds

    def atomic(self) -> AbstractContextManager[object]:
        return self._state.transaction()

    def waiter(self, claimant: Claimant, *, until: float | None) -> LocalWaiter:
        # Loaded late: a release doesn't need it.
        from leasectl.engines.local.waiter import LocalWaiter, WaitPipes
        from leasectl.system.process_watch import IdlePidfds

        if self._pipes is None:
            self._pipes, self._pidfds = WaitPipes(self._state), IdlePidfds()
            self._state.on_close.append(self._pidfds.close)
        pipe = self._pipes.get()
        if pipe.is_made or self._queues.is_waited_for(claimant.request.type):
            pipe.open()  # it takes long; now no process waits for the lock
        return LocalWaiter(self._store, claimant, pipe, pidfds=self._pidfds)

    def claim_all(self, waiters: Sequence[PoolWaiter]) -> tuple[Lease, ...]:
        # They have looked in this transaction.
        return tuple(lease for each in waiters for lease in each.claim().leases or ())

    def withdraw(self, claim_key: str, why: str = "") -> None:
        from leasectl.engines.rules.events import WITHDRAWN

        for pool_type, number, pipe in self._queues.tickets_of(claim_key):
            self._queues.take_away(pool_type, number, why=why or WITHDRAWN)
            self._queues.wake([pipe])
        # It tells its waiter that the pool wasn't deleted (`why_gone`).
        sql = "UPDATE handle SET cancelled = 1 WHERE id = ? AND state = 'acquiring'"
        self._state.db.execute(sql, (claim_key,))

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        freed = self._store.free(claim_key, names, by=by)
        if names is None:  # also what was ended by force: its holder has done with it
            self._store.early_ends.give_up(claim_key)
        return freed

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        if ttl_seconds is not None:
            self._change_ttl(claim_key, ttl_seconds)
        left = sorted(self._store.claims(claim_key, None), key=lambda claim: claim["fence"])
        wall, elapsed = self._store.clock.wall(), self._store.clock.elapsed()
        self._state.db.executemany(
            "UPDATE resource SET renew_time = ?, expires_at = ? + lease_duration_seconds "
            "WHERE name = ?",
            [(wall, elapsed, claim["name"]) for claim in left],
        )
        return tuple(claim["name"] for claim in left)

    def _change_ttl(self, claim_key: str, ttl_seconds: float) -> None:
        """Change the ttl of claims that expire; a renewal follows."""
        store = self._store
        self._state.db.execute(
            "UPDATE resource SET lease_duration_seconds = ? "
            "WHERE owner = ? AND NOT is_ended AND lease_duration_seconds IS NOT NULL",
            (ttl_seconds, claim_key),
        )
        for row in store.claims(claim_key, None):
            # It may be free sooner than its waiters know, those in the pool that it moves to
            # included.
            moves_to = store.memberships().member(row["name"]).moves_to if row["is_bound"] else None
            store.queues.wake_for(moves_to or row["type"], [row["name"]])


class LocalSides:
    """The other parts of one state directory's pools.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Called, inside the transaction, with claims that expired or were taken by force.
        caller: Who creates and changes pools, for the record of events.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock, caller: str = "") -> None:
        self._store = LocalStore(state, lost=lost, clock=clock)
        self._caller = caller

    @property
    def pools(self) -> PoolAdmin:
        from leasectl.engines.local.pools import LocalPools

        return LocalPools(self._store, self._caller)

    @property
    def events(self) -> EventLog:
        from leasectl.state.event_log import StateEventLog

        return StateEventLog(self._store.state)

    @property
    def members(self) -> Members:
        return self._store.memberships(self._caller)

    @property
    def notes(self) -> Notes:
        from leasectl.engines.local.notes import LocalNotes

        return LocalNotes(self._store)

    @property
    def values(self) -> Values:
        from leasectl.engines.local.values import LocalValues

        return LocalValues(self._store)
