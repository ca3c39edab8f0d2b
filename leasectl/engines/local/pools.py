"""Make, change and delete pools."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from leasectl.engines import refusals
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings, QueueEntry, Resource
from leasectl.engines.local.absent import remove_what_is_over
from leasectl.engines.local.member_rows import is_plain, member_of
from leasectl.engines.local.queues import RANKED_TICKETS
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.wants import LocalSettings
from leasectl.engines.rules.events import (
    POOL_DELETED,
    pool_made,
    settings_changed,
)
from leasectl.engines.rules.membership import Member, add, remove
from leasectl.engines.rules.turns import effective_priority
from leasectl.errors import StateUnwritable
from leasectl.model import Lease, Process
from leasectl.state.directory import State
from leasectl.state.reads import snapshot
from leasectl.state.rows import (
    parse_labels,
    parse_optional_process,
    parse_where,
)

# First the columns of a `Lease`, in its order.
_FACTS = (
    "resource.name AS name, resource.fence AS fence, ticket, grant_number, holder_identity, "
    "acquire_time, renew_time, lease_duration_seconds, lease_transitions, labels, owner, "
    "expires_at - :now AS expires_in"
)
_PLAIN = 12  # columns
_RESOURCES = (
    f"SELECT {_FACTS}, joined, reason, text, "
    "resource.type AS type, expected, by_default, cordoned, moves_to, leaves, member.process, "
    "ttl_seconds, properties, cordon, ends_at - :now AS ends_in, "
    "held_back_until - :now AS held_back_for "
    "FROM resource LEFT JOIN ended ON ended.name = resource.name AND is_ended "
    "LEFT JOIN note ON note.name = resource.name AND note.fence = resource.fence "
    "LEFT JOIN member ON member.name = resource.name "
    "WHERE resource.type = :type ORDER BY resource.name"
)
# For pools without other facts: to look for those of thousands takes as long as the rest.
_PLAIN_RESOURCES = f"SELECT {_FACTS} FROM resource WHERE type = :type ORDER BY name"
_IS_MORE_SO = (
    "SELECT EXISTS (SELECT 1 FROM ended) OR EXISTS (SELECT 1 FROM note) "
    "OR EXISTS (SELECT 1 FROM member)"
)
_QUEUE = (
    "SELECT ticket.number, ticket.holder_identity, ticket.count, since, ticket.owner, "
    "process, handle.name, coalesce(labels, '') AS labels, where_properties, "
    "suspended.number IS NOT NULL AS suspended, coalesce(ranked.priority, 0) AS rank, "
    f"coalesce(ranked.queued_at, :now) AS ranked_since FROM {RANKED_TICKETS} "
    "WHERE ticket.type = :type ORDER BY ticket.number"
)
# With rows of a pool that go with it.
_TABLES = ("ticket", "suspended", "ranked_ticket", "pool_setting", "default_pool", "pool")


class LocalPools:
    """The pools of one state directory; implements `PoolAdmin`.

    Args:
        store: The pools, with their claims and queues.
        caller: Who creates and changes them, for the record of events.
    """

    def __init__(self, store: LocalStore, caller: str) -> None:
        self._state = store.state
        self._clock = store.clock
        self._store = store
        self._settings = LocalSettings(store)
        self._memberships = store.memberships(caller)

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        with suppress(StateUnwritable):  # on a full disk, expired claims and dead waiters are shown
            remove_what_is_over(self._store, self._types(pool_type))
        return snapshot(self._state)

    def pools(self, pool_type: str | None = None) -> tuple[Pool, ...]:
        is_looking = self._state.db.in_transaction and not self._state.is_changing
        with snapshot(self._state) if is_looking else self.looking(pool_type):
            return tuple(map(self._pool, self._types(pool_type)))

    def _types(self, pool_type: str | None) -> list[str]:
        """Return all types, or the type of one pool that has to exist."""
        if pool_type is None:
            return self._store.pool_types()
        self._store.pool(pool_type)
        return [pool_type]

    def _pool(self, pool_type: str) -> Pool:
        settings, now = self._settings.of(pool_type), self._clock.elapsed()
        pools = self._memberships.pools()
        due = self._settings.next_grant_at(pool_type)
        return Pool(
            pool_type,
            resources(self._state, pool_type, now),
            queue(self._state, pool_type, now, aging_seconds=settings.aging_seconds),
            settings,
            0.0 if due is None else max(0.0, due - now),
            pools.grace_seconds if pools.default == pool_type else None,
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
            self._state.write_back()  # a lost log must not cost a pool
            if settings != NO_SETTINGS:
                self._change_settings(pool_type, settings)
            self._memberships.write(*self._added(pool_type, names), is_told=False)
            self._memberships.note("pool made", pool_type, names, pool_made(len(names), settings))

    def _added(self, pool_type: str, names: Sequence[str]) -> tuple[list[Member], list[Member]]:
        """Return the memberships of a new pool's names, before and after."""
        pools, before, seen = self._memberships.pools(), [], set[str]()
        for name in names:
            member = self._memberships.member(name)
            if member.pool is not None or name in seen:
                raise refusals.name_taken(name, member.pool or pool_type)
            seen.add(name)
            before.append(member)
        return before, [add(each, pool_type, pools) for each in before]

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        with self._state.transaction():
            self._store.pool(pool_type)
            before = self._settings.of(pool_type)
            if seen not in (None, before):
                return False
            self._change_settings(pool_type, settings)
            reason = settings_changed(before, settings)
            self._memberships.note("pool changed", pool_type, (), reason)
            return True

    def _change_settings(self, pool_type: str, settings: PoolSettings) -> None:
        self._settings.change(pool_type, settings)
        if settings.aging_seconds:
            self._store.queues.order(pool_type).complete()
        self._store.queues.wake_all(pool_type)

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool = False,
    ) -> tuple[str, ...]:
        with self._state.transaction():
            early_ends = self._store.early_ends
            freed: tuple[str, ...] = ()
            if at_once or guard is None:
                freed = early_ends.free_at_once(claim_key, names, expiring=at_once)
            ended = early_ends.end(claim_key, names, guard=guard, reason=reason, at_once=at_once)
            if ended:
                self._store.lost(claim_key, ended)
            return ended + freed

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        with self._state.transaction() as db:
            (pool,) = self.pools(pool_type)
            waiting = len(pool.queue)
            if not force and (pool.held or waiting):
                raise refusals.pool_in_use(pool_type, pool.held, waiting)
            self._store.expire(pool_type)
            names = [r.name for r in pool.resources]
            before = [self._memberships.member(name) for name in names]
            after = [remove(each, pool_type, force=force) for each in before]
            self._memberships.write(before, after, is_told=False)
            self._memberships.stay(pool_type)
            self._store.queues.wake_all(pool_type)
            for entry in pool.queue:
                self._store.queues.note_given_up(pool_type, entry.ticket, POOL_DELETED)
            self._memberships.note("pool deleted", pool_type, names)
            for table in _TABLES:
                db.execute(f"DELETE FROM {table} WHERE type = ?", (pool_type,))


def resources(state: State, pool_type: str, now: float) -> tuple[Resource, ...]:
    """Return a pool's resources by name, within a snapshot; now is CLOCK_BOOTTIME, in seconds."""
    if state.query(_IS_MORE_SO)[0][0]:
        return tuple(map(_resource, state.query(_RESOURCES, type=pool_type, now=now)))
    # Row by row, and by position: there may be thousands.
    return tuple([_plain(row) for row in state.read(_PLAIN_RESOURCES, type=pool_type, now=now)])


def queue(
    state: State, pool_type: str, now: float, *, aging_seconds: float
) -> tuple[QueueEntry, ...]:
    """Return the waiters of a pool, the best first.

    Args:
        state: The opened state directory.
        pool_type: The pool.
        now: CLOCK_BOOTTIME, in seconds.
        aging_seconds: Of the pool's settings.
    """
    rows = state.query(_QUEUE, type=pool_type, now=now)
    entries = [_entry(row, now, aging_seconds) for row in rows]
    return tuple(sorted(entries, key=lambda each: -each.effective_priority))


def _resource(row: sqlite3.Row) -> Resource:
    found = _plain(row[:_PLAIN])
    if found.lease is not None and row["text"] is not None:
        found = found._replace(note=row["text"])
    if found.lease is not None and row["reason"] is not None:
        found = found._replace(ended=row["reason"])
    if row["joined"] is None:  # no other facts
        return found
    member = member_of(row)
    return found._replace(
        member=None if is_plain(member) else member,
        held_back_seconds=row["held_back_for"],
        leaves_in_seconds=row["ends_in"],
    )


def _plain(row: Sequence[Any]) -> Resource:
    """Return a resource without facts other than its holder, from the columns `_FACTS`."""
    *lease, labels, owner, expires_in = row
    if owner is None:
        return Resource(row[0])
    return Resource(row[0], Lease._make((*lease, parse_labels(labels))), owner, expires_in)


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
        labels=parse_labels(row["labels"]),
        suspended=bool(row["suspended"]),
        priority=row["rank"],
        effective_priority=effective_priority(row["rank"], waited, aging_seconds),
        where=parse_where(row["where_properties"] or ""),
    )
