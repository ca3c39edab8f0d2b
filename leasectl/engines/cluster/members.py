"""Read and change memberships.

So everybody sees a name in one pool or in none, and a move is one write. What several names are
to become is decided of all before any is written; then each is written, guarded by what was seen of
it, and what comes into a pool, or is to, in the steps of `entering`. Where somebody was faster, one
looks and decides anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from leasectl.engines.cluster.changes import (
    never,
    new_resource,
    released,
    with_changes,
    with_member,
)
from leasectl.engines.cluster.claims import leases_of
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.entering import Known, Update, all_known, beside_names
from leasectl.engines.cluster.objects import MOST_AT_ONCE, Change, Found, ResourceObject, Told
from leasectl.engines.cluster.place import too_fast
from leasectl.engines.cluster.ticket import OwnTicket
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import Member, Pools, claimed_by_pattern
from leasectl.errors import AccessRefused, InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.model import Claimant
from leasectl.text.wording import followed_by, listed

_MOST_TRIES = 20
_USUAL_TTL_SECONDS = 60.0
# Of a write, the rest is for what it is decided by.
_AT_ONCE = MOST_AT_ONCE - 10


class ClusterMembers:
    """The memberships in one place, as `Members`.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._claims = context.claims
        self._events = context.events

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
        return beside_names(self._context).pools

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        at = self._events.now()
        before, after = self._context.belonging.change(change)
        self._objects.tell(self._events.belonging_changed(before, after, at=at))

    # Reading

    def reaped(self) -> Known:
        """All that is known, once what is over has been seen to, and what others left half-done."""
        known = all_known(self._context)
        if self._context.only_looks or not self._see_to(known):
            return known
        return all_known(self._context)

    def _reaped_if_we_may(self) -> Known:
        """The same; as it was seen where that is left to those who may write."""
        try:
            return self.reaped()
        except AccessRefused as refused:
            if not self._objects.is_forbidden(refused):
                raise
            return all_known(self._context)

    def _see_to(self, known: Known) -> bool:
        """Do what has to be done about what is known; returns whether there was anything."""
        view = PoolView("").add_resources(known.resources.values())
        over = self._context.observed.look(view).over
        self._context.observed.save()
        for name in over.claims:
            self._claims.end_over(view.resources[name])
        for name in over.lives - over.claims:
            self._claims.end_life(view.resources[name])
        gone, pending = known.gone(), known.belonging is not None and known.belonging.pending
        for pool_type in gone:
            self._context.deletions.finish(pool_type)
        if known.belonging is not None and pending:
            self._context.belonging.settle(known.belonging)
        unclaimed = [
            name
            for name in known.resources
            if claimed_by_pattern(known.member(name), known.pools) != known.member(name)
        ]
        if unclaimed:  # whoever has said so was killed before they went there
            self.carry_out(Update(unclaimed, claimed_by_pattern), all_known(self._context))
        return bool(over.claims or over.lives or gone or pending or unclaimed)

    # Writing

    def carry_out(self, update: Update, known: Known, own: OwnTicket | None = None) -> None:
        """Carry out a change of several names.

        Args:
            update: What that is.
            known: What is known of them.
            own: The ticket that claims them; None for no claim.
        """
        update.decide(known)
        at = self._events.now()
        try:
            for _ in range(_MOST_TRIES):
                if self._objects.unites:
                    self._try_at_once(update, own, at)
                else:
                    self._try(update, own)
                if not update.left:
                    break
                update.decide(all_known(self._context))
            else:
                raise too_fast(update.left[0])
        finally:  # some may have been written, although others were refused
            if not self._objects.unites:
                self._objects.tell(self._told_of(update, own, at))
        self._tell(update.pools_to_tell())

    def _told_of(self, update: Update, own: OwnTicket | None, at: float) -> Sequence[Told]:
        told, leases = self._events.members_changed(*update.changes(), at=at), update.leases()
        if own is None or not leases:
            return told
        held = self._claims.of_names(own.claimant.claim_key, [each.name for each in leases])
        return (*told, *self._events.granted(own.claimant, leases, held, waited=0.0))

    def _try(self, update: Update, own: OwnTicket | None) -> None:
        """Write what is left of an update, as far as other writers aren't faster."""
        if any(map(update.needs_flag, update.left)):
            self._flag(update)
        for number, name in enumerate(tuple(update.left)):
            seen = update.known.resources.get(name)
            if update.needs_flag(name) and (seen is None or not seen.entering):
                continue  # it was flagged by nobody before this was decided
            change, told = self._change_of(update.known, update.after(name), own, number)
            if change is None:
                update.note_done(name, ())
            elif own is None:
                if self._context.carry_out(change, told):
                    update.note_done(name, ())
                    self._tell_lost(change)
            elif change.seen is not None and change.new is not None:  # its flag has made it
                done = self._objects.replace(change.seen, change.new, change.is_done).resource
                if done is not None:
                    update.note_done(name, self._claims.note_made(own, done))

    def _try_at_once(self, update: Update, own: OwnTicket | None, at: float) -> None:
        """Write what is left of an update in one write, or in as few as may be.

        It is guarded by all that it was decided by, so nothing needs a flag.
        """
        self._announce(update)
        known = update.known
        if known.belonging is not None and known.belonging.pending is not None:
            self._context.belonging.settle(known.belonging)
            return
        left = tuple(update.left)
        for first in range(0, len(left), _AT_ONCE):
            names = left[first : first + _AT_ONCE]
            made = [
                (name, *self._change_of(known, update.after(name), own, first + number))
                for number, name in enumerate(names)
            ]
            steps = [(name, change, told) for name, change, told in made if change is not None]
            changes = [change for _, change, _ in steps]
            new = [each.new for each in changes if isinstance(each.new, ResourceObject)]
            told = [each for _, _, of_step in steps for each in of_step]
            told += self._events.members_changed(*update.changes_of(names), at=at)
            if own is not None and new:
                told += self._events.granted(own.claimant, leases_of(new), new, waited=0.0)
            still = self._decided_by(update, names)
            done = self._objects.write(changes, still=still, told=told) if changes else ()
            if done is None:
                return
            written = dict(zip((name for name, _, _ in steps), done))
            for name in names:
                found = written.get(name)
                is_claimed = own is not None and isinstance(found, ResourceObject)
                leases = self._claims.note_made(own, found) if is_claimed else ()  # type: ignore[arg-type]
                update.note_done(name, leases)
            for each in changes:
                self._tell_lost(each)

    def _decided_by(self, update: Update, names: Iterable[str]) -> dict[str, Found | None]:
        """What decides where some names may go beside their own objects, as it was seen."""
        known = update.known
        types = {each for name in names for each in update.goes_to(name)}
        still: dict[str, Found | None] = {
            self._objects.name_of("pool", each): known.objects.get(each) for each in types
        }
        if types:
            still[self._objects.name_of("belonging")] = known.belonging
        return still

    def _flag(self, update: Update) -> None:
        """Flag the names of an update that need it, and decide after that."""
        resources, flagged = dict(update.known.resources), []
        for name in update.left:
            if update.needs_flag(name):
                found = self._context.entering.flag(name, resources.get(name))
                if found is not None:
                    resources[name] = found
                    flagged.append(found)
        try:
            update.decide(self._context.belonging.settled()._replace(resources=resources))
            self._announce(update)
        except LeaseError:
            with contextlib.suppress(LeaseError):
                for each in flagged:
                    self._context.entering.give_up(each)
            raise

    def _announce(self, update: Update) -> None:
        """Make waiters look for names that are to move to their pools."""
        for pool_type in {update.after(name).moves_to for name in update.left}:
            pool = None if pool_type is None else update.known.objects.get(pool_type)
            if pool is not None and not pool.coming:
                self._tell([pool.type], coming=True)

    def _tell(self, types: Iterable[str], *, coming: bool = False) -> None:
        """Make all waiters of some pools look: there may be less for them, or more to come."""
        for pool_type in dict.fromkeys(types):
            for _ in range(_MOST_TRIES):
                pool = self._context.pool_object(pool_type)
                if pool is None:
                    break
                if self._objects.replace(pool, with_changes(pool, coming=coming), never).is_done:
                    break

    def _change_of(
        self, known: Known, after: Member, own: OwnTicket | None, number: int
    ) -> tuple[Change | None, Sequence[Told]]:
        """What makes of a name what is to become of it, and what is told of its claim.

        Args:
            known: What was seen of it.
            after: What is to be so.
            own: The ticket that claims it; None for no claim.
            number: Of the name, among those that it gets.
        """
        resource = known.resources.get(after.name)
        grace = known.pools.grace_seconds if after.pool == known.pools.default else 0.0
        if own is not None:
            view = PoolView(own.request.type)
            view.version = known.version
            if resource is None:
                name = self._objects.name_of("resource", after.name)
                chosen = new_resource(name, after, grace_seconds=grace)
            else:
                chosen = with_member(resource, after, grace_seconds=grace)
            return self._claims.change_by(own, view, resource, chosen, number), ()
        if resource is None:
            if not after.is_known:
                return None, ()
            name = self._objects.name_of("resource", after.name)
            return Change(None, new_resource(name, after, grace_seconds=grace)), ()
        if after == resource.member:
            return None, ()
        if not _is_taken(resource, after):
            new = with_member(resource, after, grace_seconds=grace)
            return Change(resource, new if after.is_known else None), ()
        told = self._events.ended([resource], by="removal", at=self._events.now())
        return Change(resource, released(resource, after) if after.is_known else None), told

    def _tell_lost(self, change: Change) -> None:
        """Tell who held a name that was taken out of its pool."""
        seen, new = change.seen, change.new
        if isinstance(seen, ResourceObject) and (
            new is None or (isinstance(new, ResourceObject) and _is_taken(seen, new.member))
        ):
            self._context.tell_lost(seen)

    def _ticket(self, claimant: Claimant) -> OwnTicket:
        ttl = claimant.request.ttl_seconds or _USUAL_TTL_SECONDS
        return OwnTicket(claimant, self._context, ttl_seconds=ttl)


def _is_taken(resource: ResourceObject, after: Member) -> bool:
    """Return whether a resource is held, and leaves its pool."""
    return resource.claim is not None and after.pool != resource.member.pool


def _after(done: Sequence[Member], error: LeaseError) -> LeaseError:
    """The same error, which says what had been done before it."""
    if not done:
        return error
    names = tuple(each.name for each in done)
    after = type(error)(followed_by(error, f"that is done already for {listed(names)}"))
    if isinstance(after, InvalidRequest):
        after.done = names
    return after
