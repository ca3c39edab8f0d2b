"""The embedded pools themselves: making, changing, showing and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.local.engine import LocalEngine
from leasectl.model import Lease, Pool, QueueEntry, Resource, Standing, parse_process
from leasectl.state.directory import State
from leasectl.state.handles import parse_labels
from leasectl.state.pipes import tidy
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead


class LocalPools:
    """The pools of one state directory, as `PoolAdmin`.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Told, inside the transaction, of claims that expired or were taken by force.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self._state = state
        self._lost = lost
        self._clock = clock
        self._store = LocalEngine(state, lost=lost, clock=clock)

    def atomic(self) -> AbstractContextManager[object]:
        return self._state.transaction()

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        with self._state.transaction():
            if pool_type is not None:
                self._store.capacity(pool_type)
            types = self._state.query(
                "SELECT type FROM pool WHERE ? IN (type, '') ORDER BY type", pool_type or ""
            )
            for (each,) in types:
                self._store.expire(each)
                self._drop_dead_tickets(each)
            tidy(self._state)
            return tuple(Pool(t, self._resources(t), self._queue(t)) for (t,) in types)

    def standing(self, pool_type: str, ticket: int) -> Standing:
        (pool,) = self.pools(pool_type)
        return pool.standing(ticket)

    def create_pool(self, pool_type: str, names: Sequence[str]) -> None:
        with self._state.transaction() as db:
            if db.execute("SELECT 1 FROM pool WHERE type = ?", (pool_type,)).fetchone():
                raise refusals.pool_exists(pool_type)
            db.execute("INSERT INTO pool VALUES (?, 0, 0, 0)", (pool_type,))
            self.add_resources(pool_type, names)

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        with self._state.transaction() as db:
            self._store.capacity(pool_type)
            for name in names:
                taken = db.execute("SELECT type FROM resource WHERE name = ?", (name,)).fetchone()
                if taken:
                    raise refusals.name_taken(name, taken[0])
                db.execute(
                    "INSERT INTO resource (name, type, fence, lease_transitions, labels) "
                    "VALUES (?, ?, 0, 0, '')",
                    (name, pool_type),
                )
            self._resize(pool_type, len(names))
            self._store.wake_head(pool_type)

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        with self._state.transaction() as db:
            self._store.capacity(pool_type)
            self._store.expire(pool_type)
            names = list(dict.fromkeys(names))
            claim_keys = []
            for name in names:
                row = db.execute(
                    "SELECT owner, holder_identity FROM resource WHERE name = ? AND type = ?",
                    (name, pool_type),
                ).fetchone()
                if row is None:
                    raise refusals.no_resource(pool_type, name)
                claim_key, identity = row
                if claim_key is not None:
                    if not force:
                        raise refusals.resource_held(name, identity)
                    claim_keys.append((claim_key, name))
            # Not before all are known to go: a refusal may be part of something that goes on.
            for claim_key, name in claim_keys:
                self._lost(claim_key, [name])
            db.executemany("DELETE FROM resource WHERE name = ?", ((name,) for name in names))
            self._resize(pool_type, -len(names))
            # A waiter's request may have become impossible, so all of them look again.
            self._store.wake_all(pool_type)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        with self._state.transaction() as db:
            (pool,) = self.pools(pool_type)
            waiting = len(pool.queue)
            if not force and (pool.held or waiting):
                raise refusals.pool_in_use(pool_type, pool.held, waiting)
            self.remove_resources(pool_type, [r.name for r in pool.resources], force=force)
            db.execute("DELETE FROM ticket WHERE type = ?", (pool_type,))
            db.execute("DELETE FROM pool WHERE type = ?", (pool_type,))

    def _drop_dead_tickets(self, pool_type: str) -> None:
        for number, process in self._state.query(
            "SELECT number, process FROM ticket WHERE type = ? AND process IS NOT NULL",
            pool_type,
        ):
            if is_dead(parse_process(process)):
                self._store.remove_dead_ticket(pool_type, number)

    def _resize(self, pool_type: str, by: int) -> None:
        self._state.db.execute(
            "UPDATE pool SET capacity = capacity + ? WHERE type = ?", (by, pool_type)
        )

    def _resources(self, pool_type: str) -> tuple[Resource, ...]:
        rows = self._state.query(
            "SELECT name, owner, fence, ticket, grant_number, holder_identity, acquire_time, "
            "renew_time, lease_duration_seconds, lease_transitions, labels, expires_at - ? "
            "FROM resource WHERE type = ? ORDER BY name",
            self._clock.elapsed(),
            pool_type,
        )
        return tuple(_resource(*row) for row in rows)

    def _queue(self, pool_type: str) -> tuple[QueueEntry, ...]:
        rows = self._state.query(
            "SELECT number, holder_identity, count, since, owner FROM ticket WHERE type = ? "
            "ORDER BY number",
            pool_type,
        )
        return tuple(QueueEntry(*row) for row in rows)


def _resource(
    name: str,
    claim_key: str | None,
    fence: int,
    ticket: int,
    grant: int,
    holder_identity: str,
    acquire_time: float,
    renew_time: float,
    duration: float | None,
    transitions: int,
    labels: str,
    expires_in: float | None,
) -> Resource:
    if claim_key is None:
        return Resource(name)
    lease = Lease(
        name=name,
        fence=fence,
        ticket=ticket,
        grant=grant,
        holder_identity=holder_identity,
        acquire_time=acquire_time,
        renew_time=renew_time,
        lease_duration_seconds=duration,
        lease_transitions=transitions,
        labels=parse_labels(labels),
    )
    return Resource(name, lease, claim_key, expires_in)
