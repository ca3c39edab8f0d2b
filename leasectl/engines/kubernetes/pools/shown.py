"""Read pools as they are shown, from one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.engines.kubernetes.api.refusals import is_not_permitted
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.objects.names import OBJECT_OF_BELONGING, label_of_type
from leasectl.engines.kubernetes.objects.objects import (
    POOL,
    BelongingObject,
    Json,
    Kind,
    PoolObject,
    ResourceObject,
    TicketObject,
)
from leasectl.engines.kubernetes.objects.reading import labels_of, parse_object
from leasectl.engines.kubernetes.objects.store import Seen, Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.pools.listing import no_pool
from leasectl.engines.kubernetes.queues.dead_tickets import remove_dead
from leasectl.engines.kubernetes.queues.observed import Observed
from leasectl.engines.kubernetes.queues.pace import seconds_left
from leasectl.engines.kubernetes.queues.turns import effective_priority, in_order, unmet_in
from leasectl.engines.membership import Member, Pools
from leasectl.errors import AccessRefused
from leasectl.system.clock import Clock

NO_POOLS = Pools(frozenset())
_SHOWN: tuple[Kind, ...] = ("pool", "resource", "ticket", "belonging")


class ShownPools:
    """Tells of the pools of one namespace.

    Args:
        store: Where they are.
        claims: The claims in them.
        observed: What was seen of others' lives.
        clock: Where times come from.
        only_looks: It writes nothing; what is over stays for who changes something.
        warn: Told, in a line for people, of what is there and can't be shown.
    """

    def __init__(
        self,
        store: Store,
        claims: Claims,
        observed: Observed,
        *,
        clock: Clock,
        only_looks: bool = False,
        warn: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._warn = warn
        self._only_looks = only_looks
        self._store = store
        self._claims = claims
        self._observed = observed
        self._clock = clock

    # Looking

    def pools(self, pool_type: str | None) -> tuple[Pool, ...]:
        """All pools, or the one; NotFound when there is no such type, or NoNamespace."""
        if pool_type is None:
            seen = self._store.all(*_SHOWN)
            if not seen.items:
                self._store.check_namespace()
            views = _views(seen)
            if True in [self._reap_if_we_may(view) for view in views]:
                # All anew, not only where it was: of two times a name that moves may be in neither.
                seen = self._store.all(*_SHOWN)
                views = _views(seen)
            belonging = _belonging(seen.items)
            for orphaned in _orphaned(seen):
                self._warn(str(no_pool(self._store, orphaned)))
        else:
            view = self._one(pool_type)
            views = [self._one(pool_type) if self._reap_if_we_may(view) else view]
            raw = self._store.get(OBJECT_OF_BELONGING)
            belonging = _belonging(() if raw is None else (raw,))
        return tuple(self._shown(view, belonging) for view in views)

    def _one(self, pool_type: str) -> PoolView:
        view = self._store.pool(pool_type)
        if not view.is_shown:
            raise no_pool(self._store, pool_type)
        return view

    def reaped(self, view: PoolView) -> PoolView:
        """A pool without what is over in it, which is taken away."""
        return self._store.pool(view.pool_type) if self._reap(view) else view

    def _reap(self, view: PoolView) -> bool:
        """Take away what is over in a pool; returns whether it isn't as it was seen any more."""
        if self._only_looks:
            return False
        over = self._observed.look(view).over
        self._observed.save()
        is_changed = False
        remove_dead(over.tickets, view, self._store, self._claims.events)
        for name in over.claims:
            is_changed |= self._claims.end_over(view.resources[name])
        for name in over.lives - over.claims:
            is_changed |= self._claims.end_life(view.resources[name])
        return is_changed

    def _reap_if_we_may(self, view: PoolView) -> bool:
        """The same; it is left to those who may write."""
        try:
            return self._reap(view)
        except AccessRefused as refused:
            if not is_not_permitted(refused):
                raise
            return False

    def _shown(self, view: PoolView, belonging: Pools) -> Pool:
        assert view.pool is not None
        now = self._clock.elapsed()
        resources = sorted(view.resources.values(), key=lambda each: each.name)
        queue = in_order(view)
        unmet = unmet_in(view, queue)
        return Pool(
            view.pool_type,
            tuple(self._resource(each, now) for each in resources),
            tuple(_entry(self._store, each, view, each.id.name in unmet) for each in queue),
            view.pool.settings,
            seconds_left(view.pool, self._observed, now),
            belonging.grace_seconds if belonging.default == view.pool_type else None,
        )

    def _resource(self, resource: ResourceObject, now: float) -> Resource:
        member = resource.member
        said = None if member._replace(holder=None) == Member(member.name, member.pool) else member
        claim, grace_left = resource.claim, _left(self._observed.grace_end(resource), now)
        of_name = Resource(
            resource.name,
            member=said,
            held_back_seconds=grace_left or None,
            leaves_in_seconds=_left(self._observed.life_end(resource), now),
        )
        if claim is None:
            return of_name
        return of_name._replace(
            lease=claim.lease(resource.name),
            claim_key=self._store.claim_key_of(claim.claim_key) if claim.claim_key else None,
            expires_in_seconds=_left(self._observed.claim_end(resource), now),
            holder_pid=claim.holder_pid,
            release_after_seconds=claim.release_after_seconds,
            ended=claim.ended or None,
            note=claim.note,
        )


def _left(end: float | None, now: float) -> float | None:
    return None if end is None else max(0.0, end - now)


def _belonging(items: Iterable[Json]) -> Pools:
    found = map(parse_object, items)
    return next((each.pools for each in found if isinstance(each, BelongingObject)), NO_POOLS)


def _views(seen: Seen) -> list[PoolView]:
    """What a list of all shows of each pool that is there, by type."""
    by_label: dict[str, list[object]] = {}
    types = []
    for raw in seen.items:
        by_label.setdefault(str(labels_of(raw).get(POOL)), []).append(raw)
        found = parse_object(raw)
        if isinstance(found, PoolObject):
            types.append(found.type)
    views = [
        PoolView(each).fill(by_label.get(label_of_type(each), ()), seen.version)  # type: ignore[arg-type]
        for each in sorted(types)
    ]
    return [each for each in views if each.is_shown]


def _orphaned(seen: Seen) -> list[str]:
    """The types of pools with resources, whose own object hands have damaged or taken away."""
    found = [parse_object(raw) for raw in seen.items]
    there = {each.type for each in found if isinstance(each, PoolObject)}
    types = {each.member.pool for each in found if isinstance(each, ResourceObject)}
    return sorted(each for each in types - there if each)


def _entry(store: Store, ticket: TicketObject, view: PoolView, is_unmet: bool) -> QueueEntry:
    return QueueEntry(
        ticket=ticket.place,
        holder_identity=ticket.holder_identity,
        count=ticket.count,
        since=ticket.since,
        claim_key=store.claim_key_of(ticket.claim_key),
        pid=ticket.pid,
        name=ticket.want.name,
        labels=ticket.labels,
        suspended=is_unmet,
        priority=ticket.priority,
        effective_priority=effective_priority(ticket, view),
        where=ticket.want.where,
    )
