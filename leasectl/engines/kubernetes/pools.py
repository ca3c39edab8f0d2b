"""The pools in Kubernetes themselves: making, changing and deleting them.

A pool is an object, and each of its resources is one. What is done with several of them is several
writes, each guarded; so of two who want the same name one comes second, and undoes what he has
done. Killed between two of them, whoever makes a pool leaves one with fewer resources, which `pool
apply` completes, and whoever deletes one leaves it marked: nothing can be had in it any more, and
the next who deletes it, or makes one of that type, deletes the rest.

A pool is deleted only if nobody uses it. First it is marked, which whoever looks from then on sees;
who has looked before may still claim, and then what he has claimed can't be deleted as it was seen:
the mark is taken off, and what was deleted is made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.kubernetes import bodies, resource_bodies
from leasectl.engines.kubernetes.claims import Claims
from leasectl.engines.kubernetes.forced_ends import ForcedEnds
from leasectl.engines.kubernetes.listing import no_pool
from leasectl.engines.kubernetes.members import Known, KubernetesMembers
from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.kubernetes.objects import Json, PoolObject, ResourceObject
from leasectl.engines.kubernetes.observed import Observed
from leasectl.engines.kubernetes.reading import identity_of, parse_object
from leasectl.engines.kubernetes.recognition import is_made_by
from leasectl.engines.kubernetes.shown import ShownPools
from leasectl.engines.kubernetes.store import Store
from leasectl.engines.kubernetes.turns import in_order
from leasectl.engines.kubernetes.view import PoolView
from leasectl.engines.membership import Member, add, remove
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.model import Process
from leasectl.system.clock import Clock

_MOST_TRIES = 10


class KubernetesPools:
    """The pools of one namespace, as `PoolAdmin`.

    Args:
        store: Where they are.
        claims: The claims in them.
        observed: What was seen of others' lives.
        lost: Told of leases that are taken by force.
        clock: Where times come from.
    """

    def __init__(
        self,
        store: Store,
        claims: Claims,
        observed: Observed,
        *,
        lost: LostListener,
        clock: Clock,
    ) -> None:
        self._store = store
        self._claims = claims
        self._observed = observed
        self._lost = lost
        self._shown = ShownPools(store, claims, observed, clock=clock)
        self._members = KubernetesMembers(store, claims, observed, lost=lost, clock=clock)

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        return self._shown.pools(pool_type)

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        known, after = self._to_add(pool_type, names, is_new=True)
        body = bodies.new_pool(pool_type, settings)
        written = self._store.create(body, is_made_by(body))
        if written.raw is None:
            if written.found is not None and not self._finish_deleting(written.found):
                raise refusals.pool_exists(pool_type)
            self.create_pool(pool_type, names, settings=settings)
            return
        try:
            self._make(known, after)
        except LeaseError:
            self._store.delete(identity_of(written.raw), as_seen=False)
            raise

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
            written = self._store.change(body, lambda raw: _settings_of(raw) == settings)
            if written.raw is not None:
                return True
        raise _too_fast(pool_type)

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        self._pool(pool_type)
        self._make(*self._to_add(pool_type, names, is_new=False))

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        self._pool(pool_type)
        self._members.update(
            tuple(dict.fromkeys(names)),
            lambda member, _: remove(member, pool_type, force=force),
        )

    def end_early(
        self, claim_key: str, names: Sequence[str], *, guard: Process | None, reason: str
    ) -> tuple[str, ...]:
        return ForcedEnds(self._store, self._claims, lost=self._lost).end(claim_key, names, reason)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        view = self._view(pool_type)
        _check_unused(view, force=force)
        pool = view.pool
        assert pool is not None
        written = self._store.change(bodies.deleting(pool, is_deleting=True), _is_deleting)
        if written.raw is None:
            raise _too_fast(pool_type)
        # By now whoever could still be granted something has been, or is refused.
        view = self._store.pool(pool_type)
        try:
            _check_unused(view, force=force)
            self._delete_resources(view, force=force)
        except LeaseError:
            self._go_on(pool_type)
            raise
        self._delete_rest(pool_type)
        self._members.pool_deleted(pool_type)

    # Making

    def _to_add(
        self, pool_type: str, names: Sequence[str], *, is_new: bool
    ) -> tuple[Known, list[Member]]:
        """What is known of names, and what is to be so once they are in a pool, perhaps a new one.

        Raises:
            InvalidRequest: One is in a pool, or given twice.
            NotAllowed: One belongs to another pool.
        """
        known = self._members.known()
        pools = known.pools
        seen: set[str] = set()
        ended: set[str] = set()  # pools whose deletion somebody has begun
        for name in names:
            there = known.member(name).pool
            if there is not None and there not in pools.types and there not in ended:
                ended.add(there)
                if self._finish_deleting(self._store.get(object_of_pool(there))):
                    return self._to_add(pool_type, names, is_new=is_new)
            if there is not None:
                raise refusals.name_taken(name, there)
            if name in seen:
                raise refusals.name_taken(name, pool_type)
            seen.add(name)
        if is_new:
            pools = pools._replace(types=pools.types | {pool_type})
        return known, [add(known.member(name), pool_type, pools) for name in names]

    def _make(self, known: Known, after: Sequence[Member]) -> None:
        """Have names be in a pool, all or none, unless killed in between."""
        made: list[Member] = []
        try:
            for member in after:
                if self._members.write(known, member) is None:
                    raise self._taken(member)
                made.append(member)
        except LeaseError:
            back = {each.name: known.member(each.name) for each in made}
            with contextlib.suppress(LeaseError):  # what has found a holder meanwhile stays
                self._members.update(
                    tuple(back), lambda member, _: member if member.holder else back[member.name]
                )
            raise

    def _taken(self, member: Member) -> LeaseError:
        """Why a name couldn't be put into a pool, as somebody else was faster."""
        (there,) = self._members.members([member.name])
        return refusals.name_taken(member.name, there.pool or str(member.pool))

    # Taking away

    def _delete_resources(self, view: PoolView, *, force: bool) -> None:
        """Take all of a pool away that is marked; else what is gone is made again."""
        gone: list[ResourceObject] = []
        try:
            for resource in view.resources.values():
                self._members.update(
                    (resource.name,),
                    lambda member, _: (
                        remove(member, view.pool_type, force=force)
                        if member.pool == view.pool_type
                        else member
                    ),
                )
                gone.append(resource)
        except LeaseError:
            for resource in gone:
                self._store.create(resource_bodies.made_again(resource), lambda raw: False)
            raise

    def _delete_rest(self, pool_type: str) -> None:
        """Take away what else there is of a pool that is marked, the pool itself last."""
        view = self._store.pool(pool_type)
        self._delete_resources(view, force=True)
        for found in (view.tickets, view.unreadable):
            for each in found.values():
                self._store.delete(each.id, as_seen=False)
        if view.pool is not None and view.pool.deleting:
            self._store.delete(view.pool.id, as_seen=False)

    def _go_on(self, pool_type: str) -> None:
        """Have a pool grant again that was to be deleted."""
        view = self._store.pool(pool_type)
        if view.pool is not None:
            self._store.change(
                bodies.deleting(view.pool, is_deleting=False), lambda raw: not _is_deleting(raw)
            )

    def _finish_deleting(self, raw: Json | None) -> bool:
        """Delete what is left of a pool whose deletion was ended; returns whether it was that."""
        if raw is None or not _is_deleting(raw):
            return False
        pool = parse_object(raw)
        assert isinstance(pool, PoolObject)
        self._delete_rest(pool.type)
        self._members.pool_deleted(pool.type)
        return True

    # Looking

    def _view(self, pool_type: str) -> PoolView:
        """A pool with nothing in it that is over."""
        view = self._store.pool(pool_type)
        if not view.is_there:
            raise no_pool(self._store, pool_type)
        return self._shown.reaped(view)

    def _pool(self, pool_type: str) -> PoolObject:
        raw = self._store.get(object_of_pool(pool_type))
        found = None if raw is None else parse_object(raw)
        if not isinstance(found, PoolObject) or found.deleting:
            raise no_pool(self._store, pool_type)
        return found


def _check_unused(view: PoolView, *, force: bool) -> None:
    held = sum(each.claim is not None for each in view.resources.values())
    waiting = len(in_order(view))
    if not force and (held or waiting):
        raise refusals.pool_in_use(view.pool_type, held, waiting)


def _settings_of(raw: Json) -> PoolSettings | None:
    found = parse_object(raw)
    return found.settings if isinstance(found, PoolObject) else None


def _is_deleting(raw: Json) -> bool:
    found = parse_object(raw)
    return isinstance(found, PoolObject) and found.deleting


def _too_fast(pool_type: str) -> BackendUnreachable:
    return BackendUnreachable(f'pool "{pool_type}" changes faster than it is read; try again')
