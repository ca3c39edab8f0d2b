"""Read pools as they are shown, from one list."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.listing import no_pool
from leasectl.engines.cluster.objects import (
    BelongingObject,
    Found,
    PoolObject,
    ResourceObject,
    Seen,
    Selection,
    TicketObject,
)
from leasectl.engines.cluster.pace import seconds_left
from leasectl.engines.cluster.turns import in_order, unmet_in
from leasectl.engines.cluster.view import PoolView, views_of
from leasectl.engines.cluster.waiter import remove_dead
from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.engines.rules.membership import Member, Pools
from leasectl.errors import AccessRefused

NO_POOLS = Pools(frozenset())
_SHOWN = Selection(kinds=("pool", "resource", "ticket", "belonging"))


class ShownPools:
    """Tells of the pools of one place.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._claims = context.claims
        self._observed = context.observed
        self._clock = context.clock

    # Looking

    def pools(self, pool_type: str | None, *, expiries: bool) -> tuple[Pool, ...]:
        """All pools, or the one; NotFound when there is no such type, or NoNamespace."""
        if pool_type is None:
            seen = self._objects.list(_SHOWN)
            if not seen.items:
                self._objects.check()
            views = _views(seen)
            if True in [self._reap_if_we_may(view) for view in views]:
                # All anew, not only where it was: of two times a name that moves may be in neither.
                seen = self._objects.list(_SHOWN)
                views = _views(seen)
            belonging = _belonging(seen.items)
            for orphaned in _orphaned(seen):
                self._context.warn(str(no_pool(self._context, orphaned)))
        else:
            view = self._one(pool_type)
            views = [self._one(pool_type) if self._reap_if_we_may(view) else view]
            said = self._objects.read(self._objects.name_of("belonging"))
            belonging = _belonging(() if said is None else (said,))
        return tuple(self._shown(view, belonging, expiries=expiries) for view in views)

    def _one(self, pool_type: str) -> PoolView:
        view = self._context.pool(pool_type)
        if not view.is_shown:
            raise no_pool(self._context, pool_type)
        return view

    def reaped(self, view: PoolView) -> PoolView:
        """A pool without what is over in it, which is taken away."""
        return self._context.pool(view.pool_type) if self._reap(view) else view

    def _reap(self, view: PoolView) -> bool:
        """Take away what is over in a pool; returns whether it isn't as it was seen any more."""
        if self._context.only_looks:
            return False
        over = self._observed.look(view).over
        self._observed.save()
        is_changed = False
        remove_dead(over.tickets, view, self._context)
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
            if not self._objects.is_forbidden(refused):
                raise
            return False

    def _shown(self, view: PoolView, belonging: Pools, *, expiries: bool) -> Pool:
        assert view.pool is not None
        now = self._clock.elapsed()
        resources = sorted(view.resources.values(), key=lambda each: each.name)
        queue = in_order(view)
        unmet = unmet_in(view, queue)
        return Pool(
            view.pool_type,
            tuple(self._resource(each, now, expiries=expiries) for each in resources),
            tuple(_entry(self._context, each, view, each.id.name in unmet) for each in queue),
            view.pool.settings,
            seconds_left(view.pool, self._observed, now),
            belonging.grace_seconds if belonging.default == view.pool_type else None,
        )

    def _resource(self, resource: ResourceObject, now: float, *, expiries: bool) -> Resource:
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
            claim_key=self._context.claim_key_of(claim.claim_key) if claim.claim_key else None,
            expires_in_seconds=self._expires_in(resource, now, expiries=expiries),
            holder_pid=claim.holder_pid,
            release_after_seconds=claim.release_after_seconds,
            ended=claim.ended or None,
            note=claim.note,
        )

    def _expires_in(self, resource: ResourceObject, now: float, *, expiries: bool) -> float | None:
        """When a claim is over; where claims end by themselves, by what its holder's clock said."""
        claim = resource.claim
        if not self._objects.ends or claim is None or claim.ttl_seconds is None:
            return _left(self._observed.claim_end(resource), now)
        if not expiries:
            return None
        left = claim.renew_time + claim.ttl_seconds - self._clock.wall()
        return min(max(0.0, left), claim.ttl_seconds)


def _left(end: float | None, now: float) -> float | None:
    return None if end is None else max(0.0, end - now)


def _belonging(items: Iterable[Found]) -> Pools:
    return next((each.pools for each in items if isinstance(each, BelongingObject)), NO_POOLS)


def _views(seen: Seen) -> list[PoolView]:
    """What a list of all shows of each pool that is there, by type."""
    views = views_of(seen.items, seen.version)
    return [views[each] for each in sorted(views) if views[each].is_shown]


def _orphaned(seen: Seen) -> list[str]:
    """The types of pools with resources, whose own object hands have damaged or taken away."""
    there = {each.type for each in seen.items if isinstance(each, PoolObject)}
    types = {each.member.pool for each in seen.items if isinstance(each, ResourceObject)}
    return sorted(each for each in types - there if each)


def _entry(context: Context, ticket: TicketObject, view: PoolView, is_unmet: bool) -> QueueEntry:
    return QueueEntry(
        ticket=ticket.place,
        holder_identity=ticket.holder_identity,
        count=ticket.count,
        since=ticket.since,
        claim_key=context.claim_key_of(ticket.claim_key),
        pid=ticket.pid,
        name=ticket.want.name,
        labels=ticket.labels,
        suspended=is_unmet,
        priority=ticket.priority,
        effective_priority=view.effective_priority(ticket),
        where=ticket.want.where,
    )
