"""Make, change, show and delete pools."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from leasectl.engines import refusals
from leasectl.engines.event_words import (
    POOL_DELETED,
    pool_made,
    resources_added,
    resources_removed,
    settings_changed,
)
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings, QueueEntry, Resource
from leasectl.engines.membership import Member, add
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.stock import Stock, StockedPool
from leasectl.engines.memory.store import MemoryStore
from leasectl.model import Process


class MemoryPools:
    """The pools of one process, as `PoolAdmin`; any number of threads may use it.

    Args:
        store: What is in them.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        with self._store.lock:
            types = sorted(self._store.pools) if pool_type is None else [pool_type]
            return tuple(self._show(self._store.pool(each)) for each in types)

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        with self._store.lock:
            if pool_type in self._store.pools:
                raise refusals.pool_exists(pool_type)
            change = self._to_add(pool_type, names)
            pool = self._store.new_pool(pool_type, settings)
            self._store.memberships.write(*change)
            self._store.events.changed("pool made", pool, names, pool_made(len(names), settings))

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        with self._store.lock:
            pool = self._store.pool(pool_type)
            before = pool.settings
            if seen not in (None, before):
                return False
            pool.change(settings)
            self._store.events.changed("pool changed", pool, (), settings_changed(before, settings))
            return True

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        with self._store.lock:
            pool = self._store.pool(pool_type)
            self._store.memberships.write(*self._to_add(pool_type, names))
            self._store.events.changed("pool changed", pool, names, resources_added(len(names)))

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        with self._store.lock:
            pool = self._store.pool(pool_type)
            self._store.expire(pool)
            for name in names:
                if name not in pool.stock:
                    raise refusals.no_resource(pool_type, name)
                stock = pool.stock[name]
                if stock.claim_key is not None and stock.lease is not None and not force:
                    raise refusals.resource_held(name, stock.lease.holder_identity)
            names = list(dict.fromkeys(names))
            self._store.remove([pool.stock[name] for name in names])
            self._store.events.changed("pool changed", pool, names, resources_removed(len(names)))
            self._store.tickets.look_anew(pool)

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool = False,
    ) -> tuple[str, ...]:
        with self._store.lock:
            wanted = [each for each in self._store.claims(claim_key) if each.name in names]
            kept = [each for each in self._store.kept(claim_key) if each.name in names]
            ended = tuple(stock.name for stock in wanted)
            self._store.end_early(wanted, reason)
            if ended:
                self._store.tell_lost(claim_key, ended)
            if not at_once:
                return ended
            self._store.free([*kept, *(each for each in wanted if each.ended is not None)], "force")
            return ended + tuple(stock.name for stock in kept)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        with self._store.lock:
            pool = self._store.pool(pool_type)
            self._store.expire(pool)
            held, waiting = len(pool.held), len(pool.queue)
            if not force and (held or waiting):
                raise refusals.pool_in_use(pool_type, held, waiting)
            names = list(pool.stock)
            self._store.remove(list(pool.stock.values()))
            self._store.tickets.send_away(pool.queue, POOL_DELETED)
            del self._store.pools[pool_type]
            self._store.memberships.pool_deleted(pool_type)
            self._store.events.changed("pool deleted", pool, names)

    def _to_add(self, pool_type: str, names: Sequence[str]) -> tuple[list[Member], list[Member]]:
        """What is known of names, and what is to be once they are in a pool, perhaps a new one.

        Raises:
            InvalidRequest: One is in a pool, or given twice.
            NotAllowed: One belongs to another pool.
        """
        self._store.check_untaken(pool_type, names)
        known = self._store.memberships
        pools = known.pools()
        pools = pools._replace(types=pools.types | {pool_type})
        before = [known.member(name) for name in names]
        return before, [add(each, pool_type, pools) for each in before]

    def _show(self, pool: StockedPool) -> Pool:
        self._store.expire(pool)
        now = self._store.clock.elapsed()
        stock = sorted(pool.stock.values(), key=lambda each: each.name)
        belonging = self._store.memberships.belonging
        return Pool(
            pool.type,
            tuple(self._resource(each, now) for each in stock),
            tuple(_entry(pool, each) for each in pool.queue),
            pool.settings,
            (pool.next_grant_at or now) - now,
            belonging.grace_seconds if belonging.default == pool.type else None,
        )

    def _resource(self, stock: Stock, now: float) -> Resource:
        known = self._store.memberships
        held_back_until, ends_at = known.held_back_until(stock.name), known.ends_at(stock.name)
        return _claimed(stock, now)._replace(
            member=known.what_is_so(stock.name),
            note=None if stock.claim_key is None else stock.note,
            held_back_seconds=None if held_back_until is None else held_back_until - now,
            leaves_in_seconds=None if ends_at is None else ends_at - now,
        )


def _claimed(stock: Stock, now: float) -> Resource:
    if stock.claim_key is None or stock.claimant is None:
        return Resource(stock.name)
    return Resource(
        name=stock.name,
        lease=stock.lease,
        claim_key=stock.claim_key,
        expires_in_seconds=None if stock.expires_at is None else stock.expires_at - now,
        holder_pid=stock.claimant.holder_pid,
        release_after_seconds=stock.claimant.request.release_after_seconds,
        ended=stock.ended,
    )


def _entry(pool: StockedPool, place: Place) -> QueueEntry:
    claimant = place.ticket.claimant
    request = claimant.request
    return QueueEntry(
        ticket=place.ticket.number,
        holder_identity=claimant.holder_identity,
        count=request.count,
        since=place.since,
        claim_key=claimant.claim_key,
        pid=claimant.process.pid if claimant.process else None,
        name=request.name,
        labels=request.labels,
        suspended=pool.queue.is_suspended(place),
        priority=place.priority,
        effective_priority=pool.queue.effective_priority(place),
        where=request.where,
    )
