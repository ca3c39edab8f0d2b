"""In which pool each name is, in Kubernetes: a fact of the one object that the name has.

So a name is in one pool or in none, whoever looks, and a move is one write. What several names are
to become is decided of all before any is written; then each is written at once, guarded by what was
seen of it. Where somebody else was faster, that one is looked at and decided anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable, NamedTuple

from leasectl.engines.contract import LostListener
from leasectl.engines.kubernetes import bodies, resource_bodies
from leasectl.engines.kubernetes.claims import Claims
from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.kubernetes.objects import (
    BELONGING,
    BelongingObject,
    Identity,
    Json,
    PoolObject,
    ResourceObject,
)
from leasectl.engines.kubernetes.observed import Observed
from leasectl.engines.kubernetes.reading import annotations_of, parse_object
from leasectl.engines.kubernetes.recognition import is_made_as, is_made_by
from leasectl.engines.kubernetes.store import Store
from leasectl.engines.kubernetes.ticket import OwnTicket
from leasectl.engines.kubernetes.view import PoolView
from leasectl.engines.members import Decide, Updated
from leasectl.engines.membership import Member, Pools, check_unheld, pools_with_less
from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant, Lease
from leasectl.system.clock import Clock

_MOST_TRIES = 20
_USUAL_TTL_SECONDS = 60.0


class Known(NamedTuple):
    """All that is known of names at one time.

    Args:
        version: That time.
        resources: By name.
        pools: What there is beside them.
        belonging: The object that says some of that; None where there is none.
    """

    version: int
    resources: dict[str, ResourceObject]
    pools: Pools
    belonging: BelongingObject | None

    def member(self, name: str) -> Member:
        """What is known of a name."""
        found = self.resources.get(name)
        return Member(name) if found is None else found.member


class KubernetesMembers:
    """The memberships in one namespace, as `Members`.

    Args:
        store: Where they are.
        claims: The claims there.
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
        self._clock = clock

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        known = self._reaped()
        if names is None:
            found = (known.member(name) for name in sorted(known.resources))
            return tuple(each for each in found if each.is_known)
        return tuple(map(known.member, names))

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        known = self._reaped()
        before = {name: known.member(name) for name in names}
        after = {name: decide(before[name], known.pools) for name in names}
        own = None if claimant is None else self._ticket(claimant)
        if own is not None:
            check_unheld(after.values())
        leases: list[Lease] = []
        for number, name in enumerate(names):
            for _ in range(_MOST_TRIES):
                written = self.write(known, after[name], own=own, number=number)
                if written is not None:
                    leases += written
                    break
                known = self.known()
                before[name] = known.member(name)
                after[name] = decide(before[name], known.pools)
                if own is not None:
                    check_unheld([after[name]])
            else:
                raise _too_fast(name)
        self._tell(each for name in names for each in pools_with_less(before[name], after[name]))
        return Updated(
            tuple(before[name] for name in names),
            tuple(after[name] for name in names),
            tuple(leases),
        )

    def belonging(self) -> Pools:
        return self.known("pool", "belonging").pools

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        for _ in range(_MOST_TRIES):
            known = self.known("pool", "belonging")
            pools = change(known.pools)
            body = bodies.with_belonging(known.belonging, pools)
            said = body["metadata"]["annotations"][BELONGING]

            def is_ours(raw: Json, said: str = said) -> bool:
                return annotations_of(raw).get(BELONGING) == said

            if known.belonging is None:
                written = self._store.create(body, is_made_by(body))
            else:
                written = self._store.change(body, is_ours)
            if written.raw is not None:
                return
        raise _too_fast("what belongs to which pool")

    def pool_deleted(self, pool_type: str) -> None:
        """A pool was deleted: it takes nothing any more, and what was to move there stays."""
        known = self.known()
        if known.pools.default == pool_type:
            self.change_belonging(
                lambda pools: (
                    pools._replace(default=None, grace_seconds=0.0)
                    if pools.default == pool_type
                    else pools
                )
            )
        moving = [name for name in known.resources if known.member(name).moves_to == pool_type]
        if moving:
            self.update(
                moving,
                lambda member, _: (
                    member._replace(moves_to=None) if member.moves_to == pool_type else member
                ),
            )

    def _tell(self, types: Iterable[str]) -> None:
        """Have all who wait in some pools look, as what they wait for may be no more."""
        for pool_type in dict.fromkeys(types):
            for _ in range(_MOST_TRIES):
                raw = self._store.get(object_of_pool(pool_type))
                pool = None if raw is None else parse_object(raw)
                if not isinstance(pool, PoolObject):
                    break
                if self._store.change(bodies.changed(pool), lambda raw: False).raw is not None:
                    break

    # Reading

    def known(self, *kinds: str) -> Known:
        """All that is known of names now, or what there is beside them."""
        seen = self._store.all(*(kinds or ("pool", "belonging", "resource")))  # type: ignore[arg-type]
        found = list(map(parse_object, seen.items))
        belonging = next((each for each in found if isinstance(each, BelongingObject)), None)
        pools = Pools(frozenset()) if belonging is None else belonging.pools
        types = {each.type for each in found if isinstance(each, PoolObject) and not each.deleting}
        resources = {each.name: each for each in found if isinstance(each, ResourceObject)}
        return Known(seen.version, resources, pools._replace(types=frozenset(types)), belonging)

    def _reaped(self) -> Known:
        """The same, without what is over."""
        known = self.known()
        view = PoolView("")
        view.resources = {each.id.name: each for each in known.resources.values()}
        over = self._observed.look(view).over
        self._observed.save()
        if not (over.claims or over.lives):
            return known
        for name in over.claims:
            self._claims.end_over(view.resources[name])
        for name in over.lives - over.claims:
            self._claims.end_life(view.resources[name])
        return self.known()

    # Writing

    def write(
        self, known: Known, after: Member, *, own: OwnTicket | None = None, number: int = 0
    ) -> tuple[Lease, ...] | None:
        """Have a name be what has become of it.

        Args:
            known: What was seen of it.
            after: What is to be so.
            own: Whose it is from then on; None for nobody's.
            number: Of the name, among those that it gets.

        Returns:
            What was claimed with that; None where somebody else was faster.
        """
        resource = known.resources.get(after.name)
        grace = known.pools.grace_seconds if after.pool == known.pools.default else 0.0
        if own is not None:
            return self._claim(known, resource, after, own, grace, number)
        if resource is None:
            if not after.is_known:
                return ()
            body = resource_bodies.new_resource(after, grace_seconds=grace)
            written = self._store.create(body, is_made_by(body))
            return None if written.raw is None else ()
        if after == resource.member:
            return ()
        return self._put(resource, after, grace)

    def _put(self, resource: ResourceObject, after: Member, grace: float) -> tuple[()] | None:
        """The same of one that is there, for nobody."""
        before = resource.member
        is_taken = resource.claim is not None and after.pool != before.pool
        if not after.is_known:
            if not self._store.delete(resource.id, as_seen=True):
                return None
        else:
            if is_taken:
                body = resource_bodies.released(resource, after)
            else:
                body = resource_bodies.with_member(resource, after, grace_seconds=grace)
            if self._store.change(body, is_made_as(body)).raw is None:
                return None
        if is_taken and resource.claim is not None and resource.claim.claim_key:
            self._lost(self._store.claim_key_of(resource.claim.claim_key), [resource.name])
        return ()

    def _claim(
        self,
        known: Known,
        resource: ResourceObject | None,
        after: Member,
        own: OwnTicket,
        grace: float,
        number: int,
    ) -> tuple[Lease, ...] | None:
        if resource is None:
            body = resource_bodies.new_resource(after)
            seen = ResourceObject(Identity(body["metadata"]["name"], "", 0), body, after)
        else:
            raw = resource_bodies.with_member(resource, after, grace_seconds=grace)
            seen = resource._replace(raw=raw, member=after)
        view = PoolView(own.request.type)
        view.version = known.version
        return self._claims.make_one(own, view, seen, number, is_new=resource is None)

    def _ticket(self, claimant: Claimant) -> OwnTicket:
        ttl = claimant.request.ttl_seconds or _USUAL_TTL_SECONDS
        key = self._store.with_state_id(claimant.claim_key)
        return OwnTicket(claimant, key, ttl_seconds=ttl, clock=self._clock)


def _too_fast(what: str) -> BackendUnreachable:
    return BackendUnreachable(f"{what} changes faster than it is read; try again")
