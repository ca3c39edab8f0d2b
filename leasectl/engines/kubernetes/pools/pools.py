"""Make, change and delete pools.

A pool is an object, and each of its resources is one. One that is being made isn't there for
anybody until it is complete, and one write says so. Its names come into it as any others do
(`entering`), and that last write is guarded by what was seen of the pool when all of them were seen
in it, and still to belong there. Whoever is killed before leaves a pool that isn't there; who
deletes or makes one of that type ends that (`deletions`), and its maker, if he lives, is told.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.event_words import pool_made, settings_changed
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.claims.forced_ends import ForcedEnds
from leasectl.engines.kubernetes.members.known import Known, all_known
from leasectl.engines.kubernetes.members.members import KubernetesMembers
from leasectl.engines.kubernetes.members.updates import Update
from leasectl.engines.kubernetes.objects import bodies
from leasectl.engines.kubernetes.objects.names import object_of_pool
from leasectl.engines.kubernetes.objects.objects import Json, PoolObject
from leasectl.engines.kubernetes.objects.reading import parse_object
from leasectl.engines.kubernetes.objects.recognition import is_made_by
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.pools.listing import no_pool
from leasectl.engines.kubernetes.pools.shown import ShownPools
from leasectl.engines.kubernetes.queues.observed import Observed
from leasectl.engines.membership import Member, Pools, add, remove
from leasectl.engines.pool_admin import Decide
from leasectl.errors import BackendUnreachable, LeaseError, NotAllowed
from leasectl.model import Process
from leasectl.system.clock import Clock
from leasectl.system.signals import pause

# That others are given who make a pool, before it is taken for what somebody killed has left.
_MOST_LOOKS = 20
_LOOK_AGAIN_SECONDS = 0.05
_MOST_TRIES = 20


class KubernetesPools:
    """The pools of one namespace, as `PoolAdmin`.

    Args:
        store: Where they are.
        claims: The claims in them.
        observed: What was seen of others' lives.
        lost: Told of leases that are taken by force.
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
        lost: LostListener,
        clock: Clock,
        only_looks: bool = False,
        warn: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._store = store
        self._claims = claims
        self._observed = observed
        self._lost = lost
        self._shown = ShownPools(
            store, claims, observed, clock=clock, only_looks=only_looks, warn=warn
        )
        self._members = KubernetesMembers(
            store, claims, observed, lost=lost, clock=clock, only_looks=only_looks
        )

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        return self._shown.pools(pool_type)

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        floor = self._check_new(pool_type, names).floor
        events = self._claims.events
        at = events.now()
        for _ in range(_MOST_TRIES):
            word = secrets.token_hex(8)
            body = bodies.new_pool(pool_type, settings, state="making", word=word, floor=floor)
            written = self._store.create(body, is_made_by(body))
            made = None if written.raw is None else parse_object(written.raw)
            if isinstance(made, PoolObject):
                self._fill(made, names)
                what = pool_made(len(names), settings)
                events.of_pool("pool made", pool_type, names, at=at, reason=what)
                return
            self._end_what_is_there(pool_type)
        raise _too_fast(pool_type)

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        for _ in range(_MOST_TRIES):
            pool = self._pool(pool_type)
            if seen not in (None, pool.settings):
                return False
            if pool.settings == settings:
                return True
            body = bodies.with_settings(pool, settings)
            events = self._claims.events
            at = events.now()
            written = self._store.change(body, lambda raw: _settings_of(raw) == settings)
            if written.raw is not None:
                what = settings_changed(pool.settings, settings)
                events.of_pool("pool changed", pool_type, (), at=at, reason=what)
                return True
        raise _too_fast(pool_type)

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
        forced = ForcedEnds(self._store, self._claims, lost=self._lost)
        return forced.end(claim_key, names, reason, at_once=at_once)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        self._members.deletions.delete(pool_type, force=force, reaped=self._shown.reaped)

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
        """End what somebody has begun to make, or to delete.

        Raises:
            InvalidRequest: It is a pool like any other.
        """
        deletions = self._members.deletions
        there = self._once_made(pool_type)
        if there is None and self._store.get(object_of_pool(pool_type)) is None:
            return
        if there is None or there.state == "open":
            raise refusals.pool_exists(pool_type)
        try:
            deletions.end(there, force=False)
        except NotAllowed as error:
            raise refusals.pool_exists(pool_type) from error

    def _once_made(self, pool_type: str) -> PoolObject | None:
        """What is there of a pool, once who is making it is done or has had the time for it.

        Who ends what another has begun begins anew, and so would that one.
        """
        there = self._members.deletions.pool(pool_type)
        word = None if there is None else there.word
        looks, names = 0, -1
        while there is not None and (there.state, there.word) == ("making", word):
            looks += 1
            if looks > _MOST_LOOKS:
                break
            pause(_LOOK_AGAIN_SECONDS)
            view = self._store.pool(pool_type)
            if len(view.resources) != names:  # hundreds take their time
                looks, names = 0, len(view.resources)
            there = view.pool
        return there

    def _fill(self, made: PoolObject, names: Sequence[str]) -> None:
        """Have names be in a pool that isn't there yet, and then have it be there."""
        try:
            for _ in range(_MOST_TRIES):
                update = Update(names, _to_add(made.type), making=made)
                self._members.carry_out(update, all_known(self._store))
                if self._open(made, names):
                    return
            raise _too_fast(made.type)
        except LeaseError:
            with contextlib.suppress(LeaseError):
                self._members.deletions.end(made, force=False)
            raise

    def _open(self, made: PoolObject, names: Sequence[str]) -> bool:
        """Have a pool be there if all is in it that is to be; returns whether that is so."""
        update = Update(names, lambda member, pools: add(member, made.type, pools), making=made)
        known = all_known(self._store)
        if known.belonging is not None and known.belonging.pending is not None:
            self._members.beside.settle(known.belonging)
            return False
        update.decide(known)  # or what was said meanwhile refuses it
        there = {name for name, each in known.resources.items() if each.member.pool == made.type}
        if not there.issuperset(names):
            return False
        body = bodies.in_state(known.objects[made.type], "open")
        return self._store.change(body, _is_open).raw is not None

    # Looking

    def _pool(self, pool_type: str) -> PoolObject:
        found = self._members.deletions.pool(pool_type)
        if found is None or found.state != "open":
            raise no_pool(self._store, pool_type)
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


def _settings_of(raw: Json) -> PoolSettings | None:
    found = parse_object(raw)
    return found.settings if isinstance(found, PoolObject) else None


def _is_open(raw: Json) -> bool:
    found = parse_object(raw)
    return isinstance(found, PoolObject) and found.state == "open"


def _too_fast(pool_type: str) -> BackendUnreachable:
    return BackendUnreachable(f'pool "{pool_type}" changes faster than it is read; try again')
