"""Read and change memberships.

A name's pool is a fact of its own object. So every process sees the name in one pool or in none,
and a move is one write. A change of several names is decided for all of them before the first is
written. Then each is written, guarded by what was seen of it; names that enter a pool, or are to,
take the steps of `entering`. If another writer was faster, the facts are read and decided again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from leasectl.engines.cluster.changes import new_resource, released, with_changes, with_member
from leasectl.engines.cluster.claims import leases_of
from leasectl.engines.cluster.context import MOST_AT_ONCE, Context
from leasectl.engines.cluster.deletions import finish
from leasectl.engines.cluster.entering import (
    Known,
    Update,
    all_known,
    beside_names,
    change_belonging,
    flag,
    settle,
    settled,
    unflagged,
)
from leasectl.engines.cluster.events import ToldOf
from leasectl.engines.cluster.expiry import reap
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    Found,
    ResourceObject,
    too_fast,
)
from leasectl.engines.cluster.ticket import OwnTicket
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import Member, Pools, claimed_by_pattern
from leasectl.errors import InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.model import Claimant, Lease
from leasectl.text.wording import followed_by, listed

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
        known = all_known(self._context)
        if self._context.if_allowed(lambda: self._see_to(known)):
            known = all_known(self._context)
        if names is None:
            found = (known.member(name) for name in sorted(known.resources))
            return tuple(each for each in found if each.is_known)
        return tuple(map(known.member, names))

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        known = self.reaped()
        own = None if claimant is None else OwnTicket(claimant, self._context)
        update = Update(names, decide, own=own)
        try:
            self.carry_out(update, known)
        except (InvalidRequest, NotAllowed, NotFound) as error:
            raise _after(update.changed(), error) from error
        return update.result()

    def belonging(self) -> Pools:
        return beside_names(self._context).pools

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        at = self._events.now()
        before, after = change_belonging(self._context, change)
        self._objects.tell(self._events.belonging_changed(before, after, at=at))

    # Reading

    def reaped(self) -> Known:
        """Return all that is known, after removing what is over and finishing what others began."""
        known = all_known(self._context)
        return all_known(self._context) if self._see_to(known) else known

    def _see_to(self, known: Known) -> bool:
        """Remove what is over, and finish what others began; return whether that was anything."""
        if self._context.only_looks:
            return False
        is_reaped = reap(self._context, PoolView("").add_resources(known.resources.values()))
        gone = known.gone()
        for pool_type in gone:
            finish(self._context, pool_type)
        is_settled = settle(self._context, known)
        unclaimed = [
            name
            for name in known.resources
            if claimed_by_pattern(known.member(name), known.pools) != known.member(name)
        ]
        if unclaimed:  # whoever has said so was killed before they went there
            self.carry_out(Update(unclaimed, claimed_by_pattern), all_known(self._context))
        return bool(is_reaped or gone or is_settled or unclaimed)

    # Writing

    def carry_out(self, update: Update, known: Known) -> None:
        """Carry out a change of several names, by what is known of them."""
        update.decide(known)
        at = self._events.now()
        try:
            for _ in range(MOST_TRIES):
                if self._objects.unites:
                    self._write_together(update, at)
                else:
                    self._write_each(update)
                if not update.left:
                    break
                update.decide(all_known(self._context))
            else:
                raise too_fast(update.left[0])
        finally:  # some may have been written, although others were refused
            if not self._objects.unites:
                self._objects.tell(self._told_of(update, at))
        self._tell(update.pools_to_tell())

    def _told_of(self, update: Update, at: float) -> ToldOf:
        """Return the events of all that was written."""
        told = self._events.members_changed(*update.to_tell(update.leases), at=at)
        leases = [lease for each in update.leases.values() for lease in each]
        if update.own is None or not leases:
            return told
        claimant = update.own.claimant
        held = self._claims.of_names(claimant.claim_key, [each.name for each in leases])
        return (*told, *self._events.granted(claimant, leases, held, waited=0.0))

    def _write_each(self, update: Update) -> None:
        """Write what is left of an update, as far as other writers aren't faster."""
        if any(map(update.needs_flag, update.left)):
            self._flag(update)
        for number, name in enumerate(tuple(update.left)):
            seen = update.known.resources.get(name)
            if update.needs_flag(name) and (seen is None or not seen.entering):
                continue  # it was flagged by nobody before this was decided
            change = self._change_of(update, name, number)
            if change is None:
                update.note_done(name, ())
                continue
            written = self._objects.write(change)
            if written.is_done:
                self._note_done(update, name, change, written.object)

    def _write_together(self, update: Update, at: float) -> None:
        """Write what is left of an update in one write, or in as few as may be.

        It is guarded by all that it was decided by, so nothing needs a flag.
        """
        self._announce(update)
        if settle(self._context, update.known):
            return
        own, left = update.own, tuple(update.left)
        for first in range(0, len(left), _AT_ONCE):
            names = left[first : first + _AT_ONCE]
            changes: dict[str, Change] = {}
            for number, name in enumerate(names, start=first):
                change = self._change_of(update, name, number)
                if change is not None:
                    changes[name] = change
            new = [each.new for each in changes.values() if isinstance(each.new, ResourceObject)]
            told = self._events.members_changed(*update.to_tell(names), at=at)
            if own is not None and new:
                told += self._events.granted(own.claimant, leases_of(new), new, waited=0.0)
            done: Sequence[Found | None] | None = ()
            if changes:
                still = self._decided_by(update, names)
                done = self._objects.write_together(list(changes.values()), still=still, told=told)
            if done is None:
                return
            for (name, change), written in zip(changes.items(), done):
                self._note_done(update, name, change, written)
            for name in names:
                if name not in changes:
                    update.note_done(name, ())

    def _note_done(self, update: Update, name: str, change: Change, written: Found | None) -> None:
        """Note that a name is written; tell its holder if it was taken out of its pool."""
        leases: tuple[Lease, ...] = ()
        if update.own is not None and isinstance(written, ResourceObject):
            leases = self._claims.note_made(update.own, written)
        update.note_done(name, leases)
        seen, new = change.seen, change.new
        if isinstance(seen, ResourceObject) and (
            new is None or (isinstance(new, ResourceObject) and _is_taken(seen, new.member))
        ):
            self._context.tell_lost(seen)

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
                found = flag(self._context, name, resources.get(name))
                if found is not None:
                    resources[name] = found
                    flagged.append(found)
        try:
            update.decide(settled(self._context)._replace(resources=resources))
            self._announce(update)
        except LeaseError:
            with contextlib.suppress(LeaseError):
                for each in flagged:
                    self._context.change(each, unflagged)
            raise

    def _announce(self, update: Update) -> None:
        """Make waiters look for names that are to move to their pools."""
        for pool_type in {update.after[name].moves_to for name in update.left}:
            pool = None if pool_type is None else update.known.objects.get(pool_type)
            if pool is not None and not pool.coming:
                self._tell([pool.type], coming=True)

    def _tell(self, types: Iterable[str], *, coming: bool = False) -> None:
        """Make all waiters of some pools look: there may be less for them, or more to come."""
        for pool_type in dict.fromkeys(types):
            for _ in range(MOST_TRIES):
                pool = self._context.pool_object(pool_type)
                if pool is None:
                    break
                if self._objects.write(Change(pool, with_changes(pool, coming=coming))).is_done:
                    break

    def _change_of(self, update: Update, name: str, number: int) -> Change | None:
        """Return the change of a name that an update asks for; None for no change.

        Args:
            update: What that is.
            name: Which.
            number: Of the name, among those that are claimed.
        """
        known, after, own = update.known, update.after[name], update.own
        resource = known.resources.get(name)
        is_default = after.pool == known.pools.default
        grace = known.pools.grace_seconds if is_default else 0.0
        if resource is None:
            new = new_resource(self._objects.name_of("resource", name), after, grace_seconds=grace)
        else:
            new = with_member(resource, after, grace_seconds=grace)
        if own is not None:
            view = PoolView(own.request.type)
            view.version = known.version
            return self._claims.change_by(own, view, resource, new, number)
        before = Member(name) if resource is None else resource.member
        if after == before or not (resource or after.is_known):
            return None
        if resource is None or not _is_taken(resource, after):
            return Change(resource, new if after.is_known else None)
        told = self._events.ended([resource], by="removal", at=self._events.now())
        return Change(resource, released(resource, after) if after.is_known else None, told)


def _is_taken(resource: ResourceObject, after: Member) -> bool:
    """Return whether a resource is held, and leaves its pool."""
    return resource.claim is not None and after.pool != resource.member.pool


def _after(done: Sequence[Member], error: LeaseError) -> LeaseError:
    """The same error, which says what had been done before it."""
    if not done:
        return error
    names = tuple(each.name for each in done)
    after = type(error)(followed_by(error, f"already changed: {listed(names)}"))
    if isinstance(after, InvalidRequest):
        after.done = names
    return after
