"""Create, change and delete pools.

A pool is an object, and so is each of its resources. A pool that is being created isn't there for
anybody until one write says that it is complete. Its names enter it as any others do (`entering`).
The last write is guarded by the pool's version at which all of its names were seen in it. If the
creator is killed before, an incomplete pool stays. Deleting that pool, or creating one of that
name, ends it (`deletions`), and its creator is told if it lives.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import new_pool
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.deletions import delete_pool, end_pool
from leasectl.engines.cluster.entering import Known, Update, all_known, settle
from leasectl.engines.cluster.events import ToldOf
from leasectl.engines.cluster.expiry import reap
from leasectl.engines.cluster.members import ClusterMembers
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    BelongingObject,
    Change,
    Found,
    PoolObject,
    ResourceObject,
    Seen,
    Selection,
    TicketObject,
    too_fast,
)
from leasectl.engines.cluster.turns import in_order, seconds_left, unmet_in
from leasectl.engines.cluster.view import PoolView, views_of
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings, QueueEntry, Resource
from leasectl.engines.pool_admin import Decide
from leasectl.engines.rules.events import pool_made, settings_changed
from leasectl.engines.rules.membership import Member, Pools, add
from leasectl.errors import LeaseError, NotAllowed
from leasectl.model import Process
from leasectl.system.signals import pause

NO_POOLS = Pools(frozenset())
_SHOWN = Selection(kinds=("pool", "resource", "ticket", "belonging"))
# That others are given who make a pool, before it is taken for what somebody killed has left.
_MOST_LOOKS = 20
_LOOK_AGAIN_SECONDS = 0.05


class ClusterPools:
    """The pools of one place, as `PoolAdmin`.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._events = context.events
        self._observed = context.observed
        self._clock = context.clock
        self._members = ClusterMembers(context)

    # Looking

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def pools(self, pool_type: str | None = None) -> tuple[Pool, ...]:
        if pool_type is None:
            seen = self._objects.list(_SHOWN)
            if not seen.items:
                self._objects.check()
            views = _shown_in(seen)
            if True in [self._reap(view) for view in views]:
                # All anew, not only where it was: of two times a name that moves may be in neither.
                seen = self._objects.list(_SHOWN)
                views = _shown_in(seen)
            belonging = _belonging(seen.items)
            for orphaned in _orphaned(seen):
                self._context.warn(str(self._context.no_pool(orphaned)))
        else:
            view = self._one(pool_type)
            views = [self._one(pool_type) if self._reap(view) else view]
            said = self._objects.read(self._objects.name_of("belonging"))
            belonging = _belonging(() if said is None else (said,))
        return tuple(self._shown(view, belonging) for view in views)

    def _one(self, pool_type: str) -> PoolView:
        view = self._context.pool(pool_type)
        if not view.is_shown:
            raise self._context.no_pool(pool_type)
        return view

    def _reap(self, view: PoolView) -> bool:
        return self._context.if_allowed(lambda: reap(self._context, view))

    def _shown(self, view: PoolView, belonging: Pools) -> Pool:
        assert view.pool is not None
        now = self._clock.elapsed()
        resources = sorted(view.resources.values(), key=lambda each: each.name)
        queue = in_order(view)
        unmet = unmet_in(view, queue)
        return Pool(
            view.pool_type,
            tuple(self._resource(each, now) for each in resources),
            tuple(_entry(self._context, each, view, each.id.name in unmet) for each in queue),
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
            claim_key=self._context.claim_key_of(claim.claim_key) if claim.claim_key else None,
            expires_in_seconds=self._expires_in(resource, now),
            holder_pid=claim.holder_pid,
            release_after_seconds=claim.release_after_seconds,
            ended=claim.ended or None,
            note=claim.note,
        )

    def _expires_in(self, resource: ResourceObject, now: float) -> float | None:
        """When a claim is over; where claims end by themselves, by what its holder's clock said."""
        claim = resource.claim
        if not self._objects.ends or claim is None or claim.ttl_seconds is None:
            return _left(self._observed.claim_end(resource), now)
        left = claim.renew_time + claim.ttl_seconds - self._clock.wall()
        return min(max(0.0, left), claim.ttl_seconds)

    # Changing

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        floor = self._check_new(pool_type, names).floor
        at, name = self._events.now(), self._objects.name_of("pool", pool_type)
        for _ in range(MOST_TRIES):
            word = secrets.token_hex(8)
            new = new_pool(name, pool_type, settings, state="making", word=word, floor=floor)
            made = self._objects.write(Change(None, new)).object
            if isinstance(made, PoolObject):
                what = pool_made(len(names), settings)
                told = self._events.of_pool("pool made", pool_type, names, at=at, reason=what)
                self._fill(made, names, told)
                return
            self._end_what_is_there(pool_type)
        raise too_fast(f'pool "{pool_type}"')

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        for _ in range(MOST_TRIES):
            pool = self._pool(pool_type)
            if seen not in (None, pool.settings):
                return False
            if pool.settings == settings:
                return True
            at = self._events.now()
            new = pool._replace(settings=settings)
            what = settings_changed(pool.settings, settings)
            told = self._events.of_pool("pool changed", pool_type, (), at=at, reason=what)
            if self._objects.write(Change(pool, new, told)).is_done:
                return True
        raise too_fast(f'pool "{pool_type}"')

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool = False,
    ) -> tuple[str, ...]:
        return self._context.claims.revoke(claim_key, names, reason, at_once=at_once)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        delete_pool(self._context, pool_type, force=force)

    # Making

    def _check_new(self, pool_type: str, names: Sequence[str]) -> Known:
        """Refuse names before anything is made of them; returns what is known of them.

        Raises:
            InvalidRequest: One is in a pool, or given twice.
            NotAllowed: One belongs to another pool.
        """
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise refusals.name_taken(twice[0], pool_type)
        known = self._members.reaped()
        there = known.objects.get(pool_type)
        if there is not None and there.state == "open":
            raise refusals.pool_exists(pool_type)
        if there is not None and there.state == "closing":
            self._end_what_is_there(pool_type)
            known = self._members.reaped()
        pools = known.pools._replace(types=known.pools.types | {pool_type})
        for name in names:
            _to_add(pool_type)(known.member(name), pools)
        return known

    def _end_what_is_there(self, pool_type: str) -> None:
        """Finish the creation or deletion of what is there.

        Raises:
            InvalidRequest: It is a pool like any other.
        """
        there = self._once_made(pool_type)
        if there is None and self._objects.read(self._objects.name_of("pool", pool_type)) is None:
            return
        if there is None or there.state == "open":
            raise refusals.pool_exists(pool_type)
        try:
            end_pool(self._context, there, force=False)
        except NotAllowed as error:
            raise refusals.pool_exists(pool_type) from error

    def _once_made(self, pool_type: str) -> PoolObject | None:
        """Return a pool's object, after its creator had the time to complete it.

        Ending a creation that still goes on would make both creators begin again.
        """
        there = self._context.pool_object(pool_type)
        word = None if there is None else there.word
        looks, names = 0, -1
        while there is not None and (there.state, there.word) == ("making", word):
            looks += 1
            if looks > _MOST_LOOKS:
                break
            pause(_LOOK_AGAIN_SECONDS)
            view = self._context.pool(pool_type)
            if len(view.resources) != names:  # hundreds take their time
                looks, names = 0, len(view.resources)
            there = view.pool
        return there

    def _fill(self, made: PoolObject, names: Sequence[str], told: ToldOf) -> None:
        """Put names into a pool that is being made, and open it."""
        try:
            for _ in range(MOST_TRIES):
                update = Update(names, _to_add(made.type), making=made)
                self._members.carry_out(update, all_known(self._context))
                if self._open(made, names, told):
                    return
            raise too_fast(f'pool "{made.type}"')
        except LeaseError:
            with contextlib.suppress(LeaseError):
                end_pool(self._context, made, force=False)
            raise

    def _open(self, made: PoolObject, names: Sequence[str], told: ToldOf) -> bool:
        """Open a pool if all its names are in it; return whether that is so."""
        update = Update(names, lambda member, pools: add(member, made.type, pools), making=made)
        known = all_known(self._context)
        if settle(self._context, known):
            return False
        update.decide(known)  # or what was said meanwhile refuses it
        there = {name for name, each in known.resources.items() if each.member.pool == made.type}
        if not there.issuperset(names):
            return False
        pool = known.objects[made.type]
        new = pool._replace(state="open", word="")
        return self._objects.write(Change(pool, new, told)).is_done

    def _pool(self, pool_type: str) -> PoolObject:
        found = self._context.pool_object(pool_type)
        if found is None or found.state != "open":
            raise self._context.no_pool(pool_type)
        return found


def _left(end: float | None, now: float) -> float | None:
    return None if end is None else max(0.0, end - now)


def _belonging(items: Iterable[Found]) -> Pools:
    return next((each.pools for each in items if isinstance(each, BelongingObject)), NO_POOLS)


def _shown_in(seen: Seen) -> list[PoolView]:
    return [each for each in views_of(seen.items, seen.version) if each.is_shown]


def _orphaned(seen: Seen) -> list[str]:
    """Return the types of pools that have resources, but no object that can be read."""
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
        suspended=is_unmet or ticket.is_parked,
        priority=ticket.priority,
        effective_priority=view.effective_priority(ticket),
        where=ticket.want.where,
    )


def _to_add(pool_type: str) -> Decide:
    def added(member: Member, pools: Pools) -> Member:
        if member.pool is not None:
            raise refusals.name_taken(member.name, member.pool)
        return add(member, pool_type, pools)

    return added
