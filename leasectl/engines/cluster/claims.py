"""Make and give back claims.

Exclusion: a claim is a write to the object of its resource, guarded by the version at which the
resource was seen free or over. Of two processes that saw the same version, the store lets one
succeed. Exclusion depends on nothing else: not on the queue, the age of a view or a ticket. A
holder writes only to its own claim, so one that was taken over never overwrites its successor. Time
matters only when a claim is over (`observed`). The holder counts its time from the sending of the
last renewal, so its time ends first.

All or nothing: where the store unites changes (`Objects.unites`), the claims of N resources and the
removal of the ticket are one write. Elsewhere N resources are N writes, in the order of
`turns.free_in`, which is the same for all. A process that loses one of them gives back the others
and then waits with a ticket. From then on only the ticket whose turn it is claims, so no two
processes starve each other.

A process that is killed between two of those writes leaves a part of a claim. The record of its
handle has the claim key, so the keeper or the next command frees it; with a ttl, which is the
default here, it also expires. A process that is killed after the last write leaves a ticket that
has become a claim. Others ignore that ticket, since the resource names it, and the next holder
removes it.

Fences: a fence is 1000 times the version of the view that the claim was made from, plus the number
of the resource in the claim. That view shows the previous claim or its release, so the fences of a
resource grow. After a restore with smaller versions, the last fence that the resource remembers
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import (
    claimed,
    ended,
    is_freed_by,
    is_of,
    never,
    released,
    touched,
    with_member,
)
from leasectl.engines.cluster.events import TAKEN_OVER
from leasectl.engines.cluster.objects import (
    Change,
    Claim,
    IsDone,
    ResourceObject,
    Told,
    as_resource,
    is_same,
    stamp,
)
from leasectl.engines.cluster.place import Place, by_fence
from leasectl.engines.cluster.records import parse_time
from leasectl.engines.notes import Note
from leasectl.engines.rules.membership import Member, after_lifetime, after_release
from leasectl.errors import BackendUnreachable
from leasectl.model import Lease, ReleasedBy

if TYPE_CHECKING:
    from leasectl.engines.cluster.ticket import OwnTicket
    from leasectl.engines.cluster.view import PoolView

# What is told of a grant, by its leases and the resources.
Granted = Callable[[Sequence[Lease], Sequence[ResourceObject]], Sequence[Told]]

_MOST_TRIES = 10
FENCES_PER_VERSION = 1000


class Claims:
    """The claims in one place.

    Args:
        place: That.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._objects = place.objects
        self._events = place.events
        self._clock = place.clock
        self._held: dict[str, ResourceObject] = {}  # as written here last, by the objects' names
        self._sent: dict[str, float] = {}  # when that was sent, likewise
        self._complete: set[str] = set()  # the claim keys of which nothing is missing in `_held`

    # Making them

    def make(
        self,
        own: OwnTicket,
        view: PoolView,
        chosen: Sequence[ResourceObject],
        *,
        besides: Sequence[Change] = (),
        granted: Granted,
    ) -> tuple[Lease, ...] | None:
        """Claim resources for a ticket, all or none.

        Args:
            own: Whose they become.
            view: What was seen, that they are free or over and its turn.
            chosen: As they were seen.
            besides: What else changes with that, where the store unites it.
            granted: What is told of the leases, by these and the resources.

        Returns:
            The leases; None if another claim was faster.

        Raises:
            BackendUnreachable: Some may be claimed; `find` tells.
        """
        claims = self._claims_of(own, view, chosen, wall=self._clock.wall())
        own.claim_sent_at = self._clock.elapsed()
        own.unsure = tuple(chosen)
        if self._objects.unites:
            # Who has no ticket comes before nobody who has put one since.
            unqueued = own.request.type if own.object is None else None
            made = self._make_at_once(view, chosen, claims, besides, granted, unqueued)
        else:
            made = self._make_one_by_one(chosen, claims)
        own.unsure = ()
        if made is None:
            return None
        for each in chosen:
            if each.claim is not None:
                self._place.tell_lost(each)
        for each in made:
            self.note(each, own.claim_sent_at)
        self.note_complete(own.claimant.claim_key)
        return leases_of(made)

    def _make_one_by_one(
        self, chosen: Sequence[ResourceObject], claims: Sequence[Claim]
    ) -> list[ResourceObject] | None:
        at = self._events.now()
        made: list[ResourceObject] = []
        for resource, claim in zip(chosen, claims):
            over = self._events.ended([resource], by="ttl", at=at, title=TAKEN_OVER)
            new = claimed(resource, claim)
            done = self._objects.replace(resource, new, is_of(claim), told=over).resource
            if done is None:
                self._give_back(made)
                return None
            made.append(done)
        return made

    def _make_at_once(
        self,
        view: PoolView,
        chosen: Sequence[ResourceObject],
        claims: Sequence[Claim],
        besides: Sequence[Change],
        granted: Granted,
        unqueued: str | None,
    ) -> list[ResourceObject] | None:
        new = [claimed(resource, claim) for resource, claim in zip(chosen, claims)]
        over = self._events.ended(chosen, by="ttl", at=self._events.now(), title=TAKEN_OVER)
        changes = [
            Change(seen, each, is_of(claim)) for seen, each, claim in zip(chosen, new, claims)
        ]
        told = (*over, *granted(leases_of(new), new))
        changes += besides
        changed = {each.seen.id.name for each in changes if each.seen is not None}
        pool = view.pool  # it may be about to be deleted
        still = {} if pool is None or pool.id.name in changed else {pool.id.name: pool}
        done = self._objects.write(changes, still=still, unqueued=unqueued, told=told)
        if done is None:
            return None
        return [each for each in done[: len(new)] if isinstance(each, ResourceObject)]

    def change_by(
        self,
        own: OwnTicket,
        view: PoolView,
        seen: ResourceObject | None,
        chosen: ResourceObject,
        number: int,
    ) -> Change:
        """What claims one resource past the queue, with whatever else becomes of it in that write.

        Args:
            own: Whose it becomes, which waits in no queue.
            view: Later than what was seen of the resource.
            seen: The resource as it was seen; None if it isn't there.
            chosen: It, as it is to be but for the claim.
            number: Of the resource, among those that are claimed so.
        """
        (claim,) = self._claims_of(own, view, [chosen], wall=self._clock.wall(), first=number)
        own.claim_sent_at = self._clock.elapsed()
        return Change(seen, claimed(chosen, claim), is_of(claim))

    def note_made(self, own: OwnTicket, made: ResourceObject) -> tuple[Lease, ...]:
        """A resource was claimed so; return the lease of it."""
        self.note(made, own.claim_sent_at)
        return leases_of([made])

    def find(self, own: OwnTicket) -> tuple[Lease, ...] | None:
        """What a claim got whose answers never came, if that was all; else it is given back."""
        found = self._made_at_last(own)
        if len(found) != own.request.count:
            self._give_back(found)
            found = []
        own.unsure = ()
        for each in found:
            self.note(each, own.claim_sent_at)
        self.note_complete(own.claimant.claim_key)
        return leases_of(found) or None

    def give_back(self, own: OwnTicket) -> None:
        """Free whatever a ticket has become."""
        self._give_back(self._made_at_last(own))
        own.unsure = ()

    def _give_back(self, made: Iterable[ResourceObject]) -> None:
        for each in made:
            self.release(each, is_had=False)

    def _made_at_last(self, own: OwnTicket) -> list[ResourceObject]:
        """What has become of a claim; no more can become of it once this is told.

        A write whose answer is late may itself be late. It could be carried out after its waiter
        has looked and found nothing, and has been granted another resource: nobody would know of
        that claim then, and whoever renews by the claim key would keep it alive. So what it was
        sent to is written once more where it is still as it was seen: whatever comes by that
        version afterwards is refused.

        Raises:
            BackendUnreachable: It isn't known yet.
        """
        found = self._made_of(own)
        there = {each.id.name for each in found}
        missing = [each for each in own.unsure if each.id.name not in there]
        untouched = [self._objects.replace(each, touched(each), never).is_done for each in missing]
        return found if all(untouched) else self._made_of(own)

    def _made_of(self, own: OwnTicket) -> list[ResourceObject]:
        found = self._place.claimed(own.claimant.claim_key)
        return [each for each in found if each.claim and each.claim.ticket == own.object_name]

    # Finding them

    def of_names(self, claim_key: str, names: Iterable[str]) -> list[ResourceObject]:
        """Those of some names that a claim key finds: as written here last, or as they are."""
        written = self._place.with_state_id(claim_key)
        found = []
        for name in dict.fromkeys(names):
            known = self._held.get(self._objects.name_of("resource", name))
            resource = known or self._place.resource(name)
            if resource and resource.claim and resource.claim.claim_key == written:
                found.append(resource)
        return sorted(found, key=by_fence)

    def known(self, claim_key: str) -> list[ResourceObject]:
        """What a claim key finds, as written here last; empty where some of it isn't known."""
        written = self._place.with_state_id(claim_key)
        if written not in self._complete:
            return []
        held = list(self._held.values())
        return sorted((each for each in held if _key_in(each) == written), key=by_fence)

    def is_over(self, resource: ResourceObject) -> bool:
        """Tell whether the time of a claim is over, its holder's own or as it was observed."""
        claim = resource.claim
        if claim is None or claim.ttl_seconds is None:
            return False
        now, sent_at = self._clock.elapsed(), self._sent.get(resource.id.name)
        known = self._held.get(resource.id.name)
        is_known = known is not None and known.claim is not None and known.claim.mark == claim.mark
        if is_known and sent_at is not None and sent_at + claim.ttl_seconds <= now:
            return True
        end = self._place.observed.claim_end(resource)
        return end is not None and end <= now

    def is_good(self, resource: ResourceObject) -> bool:
        """Tell whether a claim is its holder's still."""
        claim = resource.claim
        if claim is None or claim.ended or claim.is_over:
            return False
        return not self.is_over(resource)

    def renewal_of(self, claim: Claim) -> Claim:
        """The same claim, with its full time again from now on."""
        now = self._clock.wall()
        return claim._replace(renewed=stamp(now, after=claim.renewed), renew_time=now)

    # Ending them

    def free(
        self, claim_key: str, names: Sequence[str] | None, *, by: ReleasedBy
    ) -> tuple[str, ...]:
        """Implements `Engine.free`."""
        if names is None:
            held = self._place.claimed(claim_key)
        else:  # what was ended by force is given up with all the rest
            found = self.of_names(claim_key, names)
            held = [each for each in found if each.claim and not each.claim.ended]
        at = self._events.now()
        freed: list[ResourceObject] = []
        if self._objects.unites:
            freed = self._free_at_once(held, by)
        else:
            try:
                for each in held:
                    freed += self._free(each)
            finally:  # some may have been, although others couldn't be
                self._objects.tell(self._events.ended(freed, by=by, at=at))
        return tuple(each.name for each in freed if each.claim and not each.claim.ended)

    def _free_at_once(self, held: Sequence[ResourceObject], by: ReleasedBy) -> list[ResourceObject]:
        """Free claims for their holder, all in one write; return them as they were then."""
        for _ in range(_MOST_TRIES):
            over = [each for each in held if self.is_over(each)]
            good = [each for each in held if each not in over]
            for each in over:
                if not self.end_over(each):
                    there = self.as_it_is(each)
                    good += [] if there is None else [there]
            if self.free_as_seen(good, by):
                return good
            found = [self.as_it_is(each) for each in good]
            held = [each for each in found if each is not None]
        raise BackendUnreachable("leases are changed faster than they can be released; try again")

    def free_as_seen(self, held: Sequence[ResourceObject], by: ReleasedBy) -> bool:
        """End claims in one write, if none was written since; return whether that is so."""
        at, members = self._events.now(), [after_release(each.member) for each in held]
        changes = [self._end_of(each, member, is_had=True) for each, member in zip(held, members)]
        told = (
            *self._events.ended(held, by=by, at=at),
            *self._told_of([each.member for each in held], members),
        )
        for each in held:
            self.forget(each.id.name)
        return not held or self._objects.write(changes, told=told) is not None

    def _free(self, resource: ResourceObject) -> list[ResourceObject]:
        """Free a claim for its holder; returns it as it was then, if it was still its own."""
        there: ResourceObject | None = resource
        while there is not None and self.is_over(there):
            if self.end_over(there):
                return []
            there = self.as_it_is(there)
        if there is None or there.claim is None or not self.release(there):
            return []
        return [there]

    def as_it_is(self, seen: ResourceObject) -> ResourceObject | None:
        """What is there now of a claim that couldn't be ended as it was seen; None if it has gone.

        Who has claimed isn't always who renews: a keeper does, with a memory of its own.
        """
        assert seen.claim is not None
        self.forget(seen.id.name)
        there = as_resource(self._objects.read(seen.id.name))
        if there is None or there.claim is None or not is_same(there.claim, seen.claim):
            return None
        return there

    def release(
        self,
        resource: ResourceObject,
        *,
        is_had: bool = True,
        told: Callable[[ResourceObject], Sequence[Told]] = lambda seen: (),
    ) -> bool:
        """End a claim, and tell of it; return whether this call did it."""
        seen: ResourceObject | None = resource
        for _ in range(_MOST_TRIES):
            if seen is None:
                return False
            self.forget(seen.id.name)
            if self._end(seen, is_had=is_had, told=told(seen)):
                return True
            seen = self.as_it_is(seen)
        raise BackendUnreachable(
            f'resource "{resource.name}" is changed faster than it can be released; try again'
        )

    def release_as_seen(self, resource: ResourceObject, *, told: Sequence[Told]) -> bool:
        """End a claim if its resource wasn't written since; return whether that is so."""
        self.forget(resource.id.name)
        return self._end(resource, told=told)

    def end_over(self, resource: ResourceObject) -> bool:
        """Free a claim that is over, and tell of it, unless it was renewed since it was seen."""
        told = self._events.ended([resource], by="ttl", at=self._events.now())
        if not self._end(resource, told=told):
            return False
        self.forget(resource.id.name)
        self._place.tell_lost(resource)
        return True

    def _end(
        self, resource: ResourceObject, *, is_had: bool = True, told: Sequence[Told] = ()
    ) -> bool:
        member = after_release(resource.member)
        change = self._end_of(resource, member, is_had=is_had)
        told = (*told, *self._told_of([resource.member], [member]))
        return self._place.carry_out(change, told)

    def _end_of(self, resource: ResourceObject, member: Member, *, is_had: bool) -> Change:
        """What ends a claim, by what its resource is after that."""
        if not member.is_known:  # it leaves its pool, and nothing else is said of it
            return Change(resource, None)
        new = released(resource, member, is_had=is_had)
        return Change(resource, new, is_freed_by(new))

    def end_life(self, resource: ResourceObject) -> bool:
        """Take a name out of its pool when its time there is over, or once it isn't held."""
        member = after_lifetime(resource.member)
        new = with_member(resource, member) if member.is_known else None
        told = self._told_of([resource.member], [member])
        return self._place.carry_out(Change(resource, new), told)

    def _told_of(self, before: Sequence[Member], after: Sequence[Member]) -> Sequence[Told]:
        changed = [
            (one, other)
            for one, other in zip(before, after)
            if one != other._replace(holder=one.holder)
        ]
        befores, afters = [one for one, _ in changed], [other for _, other in changed]
        return self._events.members_changed(befores, afters, at=self._events.now())

    def _claims_of(
        self,
        own: OwnTicket,
        view: PoolView,
        chosen: Sequence[ResourceObject],
        *,
        wall: float,
        first: int = 0,
    ) -> list[Claim]:
        """The claims that a ticket becomes, one for each resource; `claims` says what of fences.

        Args:
            own: Whose they become.
            view: What was seen, from which they are told.
            chosen: The resources, as they were seen.
            wall: Wall clock, in seconds.
            first: The number of the first resource, among those that are claimed so.
        """
        claimant, renewed = own.claimant, stamp(wall)
        now = parse_time(renewed)  # as everybody reads it
        identity, place = claimant.holder_identity, own.as_seen(view).place
        if own.object is None and self._objects.unites:
            place = 0
        floor = 0 if view.pool is None else view.pool.floor
        base = max(view.version, floor) * FENCES_PER_VERSION + first
        served = view.served()
        fences = [max(base + n, each.fence + 1) for n, each in enumerate(chosen)]
        return [
            Claim(
                claim_key=own.claim_key,
                ticket=own.object_name,
                place=place,
                grant=fences[0],
                fence=fence,
                holder_identity=identity,
                acquire_time=now,
                renew_time=now,
                renewed=renewed,
                ttl_seconds=claimant.request.ttl_seconds,
                transitions=each.transitions + (each.last_holder not in (None, identity)),
                labels=claimant.request.labels,
                holder_pid=claimant.holder_pid,
                release_after_seconds=claimant.request.release_after_seconds,
                left=tuple(sorted(served.intersection(each.had_by))),
                life="" if claimant.request.ttl_seconds is None else own.life,
            )
            for each, fence in zip(chosen, fences)
        ]

    # What is remembered of those that were written here

    def note(self, resource: ResourceObject, sent_at: float) -> None:
        """A claim has its full time since something was sent, on the elapsed clock."""
        before = self._held.get(resource.id.name)
        if _key_in(before) != _key_in(resource):
            self.forget(resource.id.name)
        self._held[resource.id.name] = resource
        self._sent[resource.id.name] = sent_at
        self._place.observed.note(resource)

    def note_complete(self, claim_key: str) -> None:
        """All that a claim key finds has been noted, and what has gone is forgotten."""
        written = self._place.with_state_id(claim_key)
        if any(_key_in(each) == written for each in list(self._held.values())):
            self._complete.add(written)

    def forget(self, object_name: str) -> None:
        """A claim isn't as it was written here any more, or not for long."""
        self._complete.discard(_key_in(self._held.pop(object_name, None)))
        self._sent.pop(object_name, None)


class ForcedEnds:
    """Ends claims by force, while their holders may still use them.

    What has a ttl is only said to have ended, in the object itself: whoever holds it hears of that
    by a watch, or by its next renewal, which changes nothing any more. The time of the last renewal
    stays as it is, and so the claim is over when that is, for everybody who observes it, and at
    once when its holder gives it up. What has no ttl is free at once.

    Args:
        place: Where they are.
        claims: Those.
    """

    def __init__(self, place: Place, claims: Claims) -> None:
        self._place = place
        self._objects = place.objects
        self._claims = claims
        self._events = place.events

    def end(
        self, claim_key: str, names: Sequence[str], reason: str, *, at_once: bool
    ) -> tuple[str, ...]:
        """Implements `PoolAdmin.end_early`; a guard can't be seen from here.

        What is to be free at once is said to have ended first: that tells its holder. Killed in
        between, this leaves it kept, and who asks once more frees it.
        """
        held = [each for each in self._place.claimed(claim_key) if each.name in names]
        taken = self._end_at_once(held, reason) if self._objects.unites else ()
        taken = taken or tuple(each.name for each in held if self._end(each, reason))
        if taken:
            self._place.lost(claim_key, taken)
        if not at_once:
            return taken
        kept = [each for each in self._place.claimed(claim_key) if each.name in names]
        freed = [
            each.name
            for each in kept
            if each.claim and each.claim.ended and self._free(each, reason)
        ]
        return taken + tuple(name for name in freed if name not in taken)

    def _free(self, seen: ResourceObject, reason: str) -> bool:
        at, events = self._events.now(), self._events

        def told(there: ResourceObject) -> Sequence[Told]:
            return events.ended([there], by="force", at=at, reason=reason)

        return self._claims.release(seen, told=told)

    def _end_at_once(self, held: Sequence[ResourceObject], reason: str) -> tuple[str, ...]:
        """End claims that end by themselves, all in one write; return which were ended."""
        some = [
            each
            for each in held
            if each.claim and each.claim.ttl_seconds and not each.claim.ended
            if not self._claims.is_over(each)
        ]
        if len(some) < len(held) or not held:
            return ()
        life = self._objects.new_life()
        changes = [
            Change(each, ended(each, reason, life), _is_ended(each, reason)) for each in some
        ]
        told = self._events.lost(some, by="force", reason=reason)
        done = self._objects.write(changes, told=told)
        return () if done is None else tuple(each.name for each in some)

    def _end(self, seen: ResourceObject, reason: str) -> bool:
        first = seen.claim
        for _ in range(_MOST_TRIES):
            claim = seen.claim
            if first is None or claim is None or not is_same(claim, first) or claim.ended:
                return False
            if claim.ttl_seconds is None:
                return self._free(seen, reason)
            if self._claims.is_over(seen):
                self._claims.end_over(seen)
                return False
            new, is_done = ended(seen, reason, self._objects.new_life()), _is_ended(seen, reason)
            told = self._events.lost([seen], by="force", reason=reason)
            written = self._objects.replace(seen, new, is_done, told=told)
            if written.is_done:
                return True
            there = as_resource(written.found)
            if there is None:
                return False
            seen = there
        return False


def _is_ended(seen: ResourceObject, reason: str) -> IsDone:
    """What tells whether a claim was ended with a reason."""
    of_seen = ended(seen, reason).claim

    def is_ours(found: object) -> bool:
        there = found.claim if isinstance(found, ResourceObject) else None
        return there is not None and of_seen is not None and there.ended == of_seen.ended

    return is_ours


def leases_of(resources: Iterable[ResourceObject]) -> tuple[Lease, ...]:
    return tuple(each.claim.lease(each.name) for each in resources if each.claim is not None)


def _key_in(resource: ResourceObject | None) -> str:
    return resource.claim.claim_key if resource is not None and resource.claim is not None else ""


def notes_in(resources: Iterable[ResourceObject]) -> tuple[Note, ...]:
    """What is noted at the claims of some resources."""
    return tuple(
        Note(each.member.pool, each.name, each.claim.fence, each.claim.note)
        for each in resources
        if each.claim is not None
        and each.claim.note is not None
        and not each.claim.ended
        and each.member.pool is not None
    )
