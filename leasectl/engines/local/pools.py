"""The embedded pools themselves: making, changing, showing and deleting them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.event_words import (
    POOL_DELETED,
    pool_made,
    resources_added,
    resources_removed,
    settings_changed,
)
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings, QueueEntry, Resource
from leasectl.engines.local.early_ends import LocalEarlyEnds
from leasectl.engines.local.giving_up import note_given_up
from leasectl.engines.local.over import remove_what_is_over
from leasectl.engines.local.queues import RANKED_TICKETS
from leasectl.engines.local.settings import LocalSettings
from leasectl.engines.local.store import ENDED_MARK, LocalStore
from leasectl.engines.local.unmet import look_anew
from leasectl.engines.ranking import effective_priority
from leasectl.errors import StateUnwritable
from leasectl.model import Lease, Process
from leasectl.state.directory import State
from leasectl.state.event import EventKind
from leasectl.state.rows import labels_for_people, parse_labels, parse_optional_process
from leasectl.state.snapshot import snapshot
from leasectl.system.clock import Clock


class LocalPools:
    """The pools of one state directory, as `PoolAdmin`.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Told, inside the transaction, of claims that expired or were taken by force.
        caller: Who makes and changes them, for the record of events.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock, caller: str = "") -> None:
        self._state = state
        self._caller = caller
        self._lost = lost
        self._clock = clock
        self._store = LocalStore(state, lost=lost, clock=clock)
        self._early_ends = LocalEarlyEnds(self._store)
        self._settings = LocalSettings(state, clock=clock)

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        with suppress(StateUnwritable):  # a full disk: what is over, or was of the dead, is shown
            remove_what_is_over(self._store, self._types(pool_type), clock=self._clock)
        return snapshot(self._state)

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        is_looking = self._state.db.in_transaction and not self._state.is_changing
        with snapshot(self._state) if is_looking else self.looking(pool_type):
            return tuple(map(self._pool, self._types(pool_type)))

    def _types(self, pool_type: str | None) -> list[str]:
        """All types, or the one of a pool that has to be there."""
        if pool_type is None:
            return self._store.pool_types()
        self._store.pool(pool_type)
        return [pool_type]

    def _pool(self, pool_type: str) -> Pool:
        settings = self._settings.of(pool_type)
        due = self._settings.next_grant_at(pool_type)
        return Pool(
            pool_type,
            self._resources(pool_type),
            self._queue(pool_type, settings.aging_seconds),
            settings,
            0.0 if due is None else max(0.0, due - self._clock.elapsed()),
        )

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        with self._state.transaction() as db:
            if db.execute("SELECT 1 FROM pool WHERE type = ?", (pool_type,)).fetchone():
                raise refusals.pool_exists(pool_type)
            db.execute(
                "INSERT INTO pool (type, capacity, last_ticket, last_grant) VALUES (?, 0, 0, 0)",
                (pool_type,),
            )
            if settings != NO_SETTINGS:
                self._change_settings(pool_type, settings)
            self._add_resources(pool_type, names)
            self._note("pool made", pool_type, names, pool_made(len(names), settings))

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        with self._state.transaction():
            self._store.pool(pool_type)
            before = self._settings.of(pool_type)
            if seen not in (None, before):
                return False
            self._change_settings(pool_type, settings)
            self._note("pool changed", pool_type, (), settings_changed(before, settings))
            return True

    def _change_settings(self, pool_type: str, settings: PoolSettings) -> None:
        self._settings.change(pool_type, settings)
        if settings.aging_seconds:
            self._store.queues.order(pool_type).complete()
        self._store.queues.wake_all(pool_type)

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        with self._state.transaction():
            self._store.pool(pool_type)
            self._add_resources(pool_type, names)
            self._note("pool changed", pool_type, names, resources_added(len(names)))

    def _add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        db = self._state.db
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
        self._store.queues.wake_for(pool_type, names)
        self._store.queues.wake_suspended(pool_type)

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        with self._state.transaction():
            self._store.pool(pool_type)
            names = list(dict.fromkeys(names))
            self._remove_resources(pool_type, names, force=force)
            look_anew(self._store.queues, pool_type)
            self._note("pool changed", pool_type, names, resources_removed(len(names)))

    def _remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        db = self._state.db
        self._store.expire(pool_type)
        held: dict[str, list[str]] = {}
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
                held.setdefault(claim_key, []).append(name)
        # Not before all are known to go: a refusal may be part of something that goes on.
        for claim_key, lost in held.items():
            claims = self._store.claims(claim_key, lost)
            if not claim_key.startswith(ENDED_MARK):
                self._store.note_end("lost", claim_key, claims, by="removal")
            self._store.note_end("released", claim_key, claims, by="removal")
            self._lost(claim_key, lost)
        db.executemany("DELETE FROM resource WHERE name = ?", ((name,) for name in names))
        db.executemany("DELETE FROM ended WHERE name = ?", ((name,) for name in names))
        self._resize(pool_type, -len(names))

    def end_early(
        self, claim_key: str, names: Sequence[str], *, guard: Process | None, reason: str
    ) -> tuple[str, ...]:
        with self._state.transaction():
            freed = () if guard else self._early_ends.free_at_once(claim_key, names)
            ended = self._early_ends.end(claim_key, names, guard=guard, reason=reason)
            if ended:
                self._lost(claim_key, ended)
            return ended + freed

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        with self._state.transaction() as db:
            (pool,) = self.pools(pool_type)
            waiting = len(pool.queue)
            if not force and (pool.held or waiting):
                raise refusals.pool_in_use(pool_type, pool.held, waiting)
            names = [r.name for r in pool.resources]
            self._remove_resources(pool_type, names, force=force)
            self._store.queues.wake_all(pool_type)
            for entry in pool.queue:
                note_given_up(
                    self._state, pool_type, entry.ticket, why=POOL_DELETED, clock=self._clock
                )
            self._note("pool deleted", pool_type, names)
            db.execute("DELETE FROM ticket WHERE type = ?", (pool_type,))
            db.execute("DELETE FROM suspended WHERE type = ?", (pool_type,))
            db.execute("DELETE FROM ranked_ticket WHERE type = ?", (pool_type,))
            db.execute("DELETE FROM pool_setting WHERE type = ?", (pool_type,))
            db.execute("DELETE FROM pool WHERE type = ?", (pool_type,))

    def _note(
        self, kind: EventKind, pool_type: str, names: Sequence[str], reason: str = ""
    ) -> None:
        self._state.events.add(
            self._clock.wall(),
            kind,
            pool_type,
            names,
            holder=self._caller,
            count=len(names),
            reason=reason,
        )

    def _resize(self, pool_type: str, by: int) -> None:
        self._state.write_back()  # a pool may be all that there is in the log
        self._state.db.execute(
            "UPDATE pool SET capacity = capacity + ? WHERE type = ?", (by, pool_type)
        )

    def _resources(self, pool_type: str) -> tuple[Resource, ...]:
        rows = self._state.query(
            "SELECT resource.name AS name, owner, fence, ticket, grant_number, holder_identity, "
            "acquire_time, renew_time, lease_duration_seconds, lease_transitions, labels, "
            "expires_at - ? AS expires_in, claim_key, reason FROM resource LEFT JOIN ended "
            f"ON ended.name = resource.name AND owner = '{ENDED_MARK}' || claim_key "
            "WHERE resource.type = ? ORDER BY resource.name",
            self._clock.elapsed(),
            pool_type,
        )
        return tuple(_resource(row) for row in rows)

    def _queue(self, pool_type: str, aging_seconds: float) -> tuple[QueueEntry, ...]:
        now = self._clock.elapsed()
        rows = self._state.query(
            "SELECT ticket.number, ticket.holder_identity, ticket.count, since, ticket.owner, "
            "process, handle.name, coalesce(labels, '') AS labels, "
            "suspended.number IS NOT NULL AS suspended, coalesce(ranked.priority, 0) AS rank, "
            f"coalesce(ranked.queued_at, ?) AS ranked_since FROM {RANKED_TICKETS} "
            "WHERE ticket.type = ? ORDER BY ticket.number",
            now,
            pool_type,
        )
        entries = [_entry(row, now, aging_seconds) for row in rows]
        return tuple(sorted(entries, key=lambda each: -each.effective_priority))


def _resource(row: sqlite3.Row) -> Resource:
    name = row["name"]
    if row["owner"] is None:
        return Resource(name)
    lease = Lease(
        name=name,
        fence=row["fence"],
        ticket=row["ticket"],
        grant=row["grant_number"],
        holder_identity=row["holder_identity"],
        acquire_time=row["acquire_time"],
        renew_time=row["renew_time"],
        lease_duration_seconds=row["lease_duration_seconds"],
        lease_transitions=row["lease_transitions"],
        labels=parse_labels(row["labels"]),
    )
    ended = row["reason"]
    claim_key = row["owner"] if ended is None else row["claim_key"]
    return Resource(name, lease, claim_key, row["expires_in"], ended=ended)


def _entry(row: sqlite3.Row, now: float, aging_seconds: float) -> QueueEntry:
    process = parse_optional_process(row["process"])
    waited = now - row["ranked_since"]
    return QueueEntry(
        ticket=row["number"],
        holder_identity=row["holder_identity"],
        count=row["count"],
        since=row["since"],
        claim_key=row["owner"],
        pid=process.pid if process else None,
        name=row["name"],
        labels=labels_for_people(parse_labels(row["labels"])),
        suspended=bool(row["suspended"]),
        priority=row["rank"],
        effective_priority=effective_priority(row["rank"], waited, aging_seconds),
    )
