"""Make, change and delete pools.

A pool is an object, and each of its resources is one. One that is being made isn't there for
anybody until it is complete, and one write says so. Its names come into it as any others do
(`entering`), and that last write is guarded by what was seen of the pool when all of them were seen
in it, and still to belong there. A creator killed before leaves a pool that isn't there; who
deletes or makes one of that type ends that (`deletions`), and its maker, if he lives, is told.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import new_pool
from leasectl.engines.cluster.claims import ForcedEnds
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.known import Known, Update, all_known
from leasectl.engines.cluster.listing import no_pool
from leasectl.engines.cluster.members import ClusterMembers
from leasectl.engines.cluster.objects import Found, IsDone, PoolObject, Told
from leasectl.engines.cluster.place import too_fast
from leasectl.engines.cluster.shown import ShownPools
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.pool_admin import Decide
from leasectl.engines.rules.events import pool_made, settings_changed
from leasectl.engines.rules.membership import Member, Pools, add, remove
from leasectl.errors import LeaseError, NotAllowed
from leasectl.model import Process
from leasectl.system.signals import pause

# That others are given who make a pool, before it is taken for what somebody killed has left.
_MOST_LOOKS = 20
_LOOK_AGAIN_SECONDS = 0.05
_MOST_TRIES = 20


class ClusterPools:
    """The pools of one place, as `PoolAdmin`.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._events = context.events
        self._shown = ShownPools(context)
        self._members = ClusterMembers(context)

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        return self._shown.pools(pool_type, expiries=expiries)

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        floor = self._check_new(pool_type, names).floor
        at, name = self._events.now(), self._objects.name_of("pool", pool_type)
        for _ in range(_MOST_TRIES):
            word = secrets.token_hex(8)
            new = new_pool(name, pool_type, settings, state="making", word=word, floor=floor)
            made = self._objects.create(new).object
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
        for _ in range(_MOST_TRIES):
            pool = self._pool(pool_type)
            if seen not in (None, pool.settings):
                return False
            if pool.settings == settings:
                return True
            at = self._events.now()
            new = pool._replace(settings=settings)
            what = settings_changed(pool.settings, settings)
            told = self._events.of_pool("pool changed", pool_type, (), at=at, reason=what)
            if self._objects.replace(pool, new, _has_settings(settings), told=told).is_done:
                return True
        raise too_fast(f'pool "{pool_type}"')

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        self._pool(pool_type)
        _check_twice(pool_type, names)
        update = Update(names, _to_add(pool_type))
        try:
            self._members.carry_out(update, self._members.reaped())
        except LeaseError:
            back = {each.name: each for each in update.done()}
            with contextlib.suppress(LeaseError):  # but for what others have done since
                self._members.update(
                    tuple(back),
                    lambda now, _: back[now.name] if now == update.after(now.name) else now,
                )
            raise

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        self._pool(pool_type)
        self._members.update(
            tuple(dict.fromkeys(names)),
            lambda member, _: remove(member, pool_type, force=force),
        )

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool = False,
    ) -> tuple[str, ...]:
        return ForcedEnds(self._context, self._context.claims).end(
            claim_key, names, reason, at_once=at_once
        )

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        self._context.deletions.delete(pool_type, force=force, reaped=self._shown.reaped)

    # Making

    def _check_new(self, pool_type: str, names: Sequence[str]) -> Known:
        """Refuse names before anything is made of them; returns what is known of them.

        Raises:
            InvalidRequest: One is in a pool, or given twice.
            NotAllowed: One belongs to another pool.
        """
        _check_twice(pool_type, names)
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
            self._context.deletions.end(there, force=False)
        except NotAllowed as error:
            raise refusals.pool_exists(pool_type) from error

    def _once_made(self, pool_type: str) -> PoolObject | None:
        """What is there of a pool, once who is making it is done or has had the time for it.

        Who ends what another has begun begins anew, and so would that one.
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

    def _fill(self, made: PoolObject, names: Sequence[str], told: Sequence[Told]) -> None:
        """Put names into a pool that is being made, and open it."""
        try:
            for _ in range(_MOST_TRIES):
                update = Update(names, _to_add(made.type), making=made)
                self._members.carry_out(update, all_known(self._context))
                if self._open(made, names, told):
                    return
            raise too_fast(f'pool "{made.type}"')
        except LeaseError:
            with contextlib.suppress(LeaseError):
                self._context.deletions.end(made, force=False)
            raise

    def _open(self, made: PoolObject, names: Sequence[str], told: Sequence[Told]) -> bool:
        """Open a pool if all its names are in it; return whether that is so."""
        update = Update(names, lambda member, pools: add(member, made.type, pools), making=made)
        known = all_known(self._context)
        if known.belonging is not None and known.belonging.pending is not None:
            self._context.belonging.settle(known.belonging)
            return False
        update.decide(known)  # or what was said meanwhile refuses it
        there = {name for name, each in known.resources.items() if each.member.pool == made.type}
        if not there.issuperset(names):
            return False
        pool = known.objects[made.type]
        new = pool._replace(state="open", word="")
        return self._objects.replace(pool, new, _is_open, told=told).is_done

    # Looking

    def _pool(self, pool_type: str) -> PoolObject:
        found = self._context.pool_object(pool_type)
        if found is None or found.state != "open":
            raise no_pool(self._context, pool_type)
        return found


def _to_add(pool_type: str) -> Decide:
    def added(member: Member, pools: Pools) -> Member:
        if member.pool is not None:
            raise refusals.name_taken(member.name, member.pool)
        return add(member, pool_type, pools)

    return added


def _check_twice(pool_type: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refusals.name_taken(name, pool_type)
        seen.add(name)


def _has_settings(settings: PoolSettings) -> IsDone:
    return lambda found: isinstance(found, PoolObject) and found.settings == settings


def _is_open(found: Found) -> bool:
    return isinstance(found, PoolObject) and found.state == "open"
