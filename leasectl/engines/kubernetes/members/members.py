"""Read and change memberships.

So a name is in one pool or in none, whoever looks, and a move is one write. What several names are
to become is decided of all before any is written; then each is written, guarded by what was seen of
it, and what comes into a pool, or is to, in the steps of `entering`. Where somebody was faster, one
looks and decides anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from leasectl.engines.contract import LostListener
from leasectl.engines.kubernetes.api.refusals import is_not_permitted
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.members.belonging import Belonging
from leasectl.engines.kubernetes.members.entering import Entering
from leasectl.engines.kubernetes.members.known import Known, all_known, beside_names
from leasectl.engines.kubernetes.members.updates import Update
from leasectl.engines.kubernetes.objects import bodies, resource_bodies
from leasectl.engines.kubernetes.objects.objects import ResourceObject
from leasectl.engines.kubernetes.objects.recognition import is_made_by
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.pools.deletions import Deletions
from leasectl.engines.kubernetes.queues.observed import Observed
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.engines.membership import Member, Pools, claimed_by_pattern
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    InvalidRequest,
    LeaseError,
    NotAllowed,
    NotFound,
)
from leasectl.model import Claimant, Lease
from leasectl.system.clock import Clock
from leasectl.text.wording import followed_by, listed

_MOST_TRIES = 20
_USUAL_TTL_SECONDS = 60.0


class KubernetesMembers:
    """The memberships in one namespace, as `Members`.

    Args:
        store: Where they are.
        claims: The claims there.
        observed: What was seen of others' lives.
        lost: Told of leases that are taken by force.
        clock: Where times come from.
        only_looks: It writes nothing; what is over stays for who changes something.

    Attributes:
        entering: The flags of names that come into pools.
        beside: What is said beside pools.
        deletions: What deletes those.
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
    ) -> None:
        self._store = store
        self._claims = claims
        self._observed = observed
        self._lost = lost
        self._clock = clock
        self._only_looks = only_looks
        self.entering = Entering(store)
        self.beside = Belonging(store, self.entering)
        self.deletions = Deletions(
            store, self.entering, self.beside, lost=lost, events=claims.events
        )

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        known = self._reaped_if_we_may()
        if names is None:
            found = (known.member(name) for name in sorted(known.resources))
            return tuple(each for each in found if each.is_known)
        return tuple(map(known.member, names))

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        known = self.reaped()
        update = Update(names, decide, is_claimed=claimant is not None)
        try:
            self.carry_out(update, known, None if claimant is None else self._ticket(claimant))
        except (InvalidRequest, NotAllowed, NotFound) as error:
            raise _after(update.done(), error) from error
        return update.result()

    def belonging(self) -> Pools:
        return beside_names(self._store).pools

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        events = self._claims.events
        at = events.now()
        before, after = self.beside.change(change)
        events.belonging_changed(before, after, at=at)

    # Reading

    def reaped(self) -> Known:
        """All that is known, once what is over has been seen to, and what others left half-done."""
        known = all_known(self._store)
        if self._only_looks or not self._see_to(known):
            return known
        return all_known(self._store)

    def _reaped_if_we_may(self) -> Known:
        """The same; as it was seen where that is left to those who may write."""
        try:
            return self.reaped()
        except AccessRefused as refused:
            if not is_not_permitted(refused):
                raise
            return all_known(self._store)

    def _see_to(self, known: Known) -> bool:
        """Do what has to be done about what is known; returns whether there was anything."""
        view = PoolView("")
        view.resources = {each.id.name: each for each in known.resources.values()}
        over = self._observed.look(view).over
        self._observed.save()
        for name in over.claims:
            self._claims.end_over(view.resources[name])
        for name in over.lives - over.claims:
            self._claims.end_life(view.resources[name])
        gone, pending = known.gone(), known.belonging is not None and known.belonging.pending
        for pool_type in gone:
            self.deletions.finish(pool_type)
        if known.belonging is not None and pending:
            self.beside.settle(known.belonging)
        unclaimed = [
            name
            for name in known.resources
            if claimed_by_pattern(known.member(name), known.pools) != known.member(name)
        ]
        if unclaimed:  # whoever has said so was killed before they went there
            self.carry_out(Update(unclaimed, claimed_by_pattern), all_known(self._store))
        return bool(over.claims or over.lives or gone or pending or unclaimed)

    # Writing

    def carry_out(self, update: Update, known: Known, own: OwnTicket | None = None) -> None:
        """Have that become of names which is to become of them.

        Args:
            update: What that is.
            known: What is known of them.
            own: Whose they are from then on; None for nobody's.
        """
        update.decide(known)
        at = self._claims.events.now()
        try:
            for _ in range(_MOST_TRIES):
                self._try(update, own)
                if not update.left:
                    break
                update.decide(all_known(self._store))
            else:
                raise _too_fast(update.left[0])
        finally:  # some may have been written, although others were refused
            self._tell_of(update, own, at)
        self._tell(update.pools_to_tell())

    def _tell_of(self, update: Update, own: OwnTicket | None, at: float) -> None:
        events, leases = self._claims.events, update.leases()
        events.members_changed(*update.changes(), at=at)
        if own is not None and leases:
            held = self._claims.of_names(own.claimant.claim_key, [each.name for each in leases])
            events.granted(own.claimant, leases, held, waited=0.0)

    def _try(self, update: Update, own: OwnTicket | None) -> None:
        """Write what is left of an update, as far as nobody is faster."""
        if any(map(update.needs_flag, update.left)):
            self._flag(update)
        for number, name in enumerate(tuple(update.left)):
            seen = update.known.resources.get(name)
            if update.needs_flag(name) and (seen is None or not seen.entering):
                continue  # it was flagged by nobody before this was decided
            written = self._write(update.known, update.after(name), own, number)
            if written is not None:
                update.note_done(name, written)

    def _flag(self, update: Update) -> None:
        """Have those of an update have flags that need one, and decide on it after that."""
        resources, flagged = dict(update.known.resources), []
        for name in update.left:
            if update.needs_flag(name):
                found = self.entering.flag(name, resources.get(name))
                if found is not None:
                    resources[name] = found
                    flagged.append(found)
        try:
            update.decide(self.beside.settled()._replace(resources=resources))
            self._announce(update)
        except LeaseError:
            with contextlib.suppress(LeaseError):
                for each in flagged:
                    self.entering.give_up(each)
            raise

    def _announce(self, update: Update) -> None:
        """Have those who wait where names are to move look whether they are free by then."""
        for pool_type in {update.after(name).moves_to for name in update.left}:
            pool = None if pool_type is None else update.known.objects.get(pool_type)
            if pool is not None and not pool.coming:
                self._tell([pool.type], coming=True)

    def _tell(self, types: Iterable[str], *, coming: bool = False) -> None:
        """Have all who wait in some pools look, as what they wait for may be no more, or come."""
        for pool_type in dict.fromkeys(types):
            for _ in range(_MOST_TRIES):
                pool = self.deletions.pool(pool_type)
                if pool is None:
                    break
                body = bodies.with_coming(pool) if coming else bodies.changed(pool)
                if self._store.change(body, lambda raw: False).raw is not None:
                    break

    def _write(
        self, known: Known, after: Member, own: OwnTicket | None, number: int
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
        if resource is None:
            if not after.is_known:
                return ()
            body = resource_bodies.new_resource(after, grace_seconds=grace)
            written = self._store.create(body, is_made_by(body))
            return None if written.raw is None else ()
        if own is not None:
            raw = resource_bodies.with_member(resource, after, grace_seconds=grace)
            view = PoolView(own.request.type)
            view.version = known.version
            chosen = resource._replace(raw=raw, member=after)
            return self._claims.make_one(own, view, chosen, number)
        if after == resource.member:
            return ()
        return self._put(resource, after, grace)

    def _put(self, resource: ResourceObject, after: Member, grace: float) -> tuple[()] | None:
        """The same of one that is there, for nobody."""
        before = resource.member
        is_taken = resource.claim is not None and after.pool != before.pool
        at = self._claims.events.now()
        if not after.is_known:
            if not self._store.delete(resource.id, as_seen=True):
                return None
        else:
            if is_taken:
                body = resource_bodies.released(resource, after)
            else:
                body = resource_bodies.with_member(resource, after, grace_seconds=grace)
            if self._store.change(body, is_made_by(body)).raw is None:
                return None
        if is_taken and resource.claim is not None and resource.claim.claim_key:
            self._claims.events.ended([resource], by="removal", at=at)
            self._lost(self._store.claim_key_of(resource.claim.claim_key), [resource.name])
        return ()

    def _ticket(self, claimant: Claimant) -> OwnTicket:
        ttl = claimant.request.ttl_seconds or _USUAL_TTL_SECONDS
        key = self._store.with_state_id(claimant.claim_key)
        return OwnTicket(claimant, key, ttl_seconds=ttl, clock=self._clock)


def _after(done: Sequence[Member], error: LeaseError) -> LeaseError:
    """The same error, which says what had been done before it."""
    if not done:
        return error
    names = tuple(each.name for each in done)
    after = type(error)(followed_by(error, f"that is done already for {listed(names)}"))
    if isinstance(after, InvalidRequest):
        after.done = names
    return after


def _too_fast(what: str) -> BackendUnreachable:
    return BackendUnreachable(f"{what} changes faster than it is read; try again")
