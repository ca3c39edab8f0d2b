"""Make and give back claims, one guarded write for each resource.

Exclusion. A claim is a write to the one object of its resource, and each such write is guarded by
the resourceVersion with which that was seen free, or over. Of two who have seen it so, the server
carries out one. Nothing else matters for it: not who waits, not how old a view is, not what became
of a ticket. A holder never writes but as its own claim, so who was taken over never writes over a
successor. Time comes in only where a claim is over (`observed`), and there the holder's own time,
which counts from the sending of what gave it that, is over before.

All or nothing. N resources are N writes, in the order of `turns.free_in`, the same for all. Whoever
loses one gives back what it has so far, and then waits with a ticket: from then on only whose turn
it is claims, so no two starve each other. Two on the fast road may each hold a part for a moment;
both lose, both give back, and both have a ticket then.

Killed between two of those writes, a process leaves a part of a claim. It carries the claim key
that is in the record of its handle: whoever recovers that, the keeper or the next command, frees
it; and with a ttl, which requests have here unless somebody says otherwise, it is over by itself.
Until then it looks like any claim. Killed after the last one and before its ticket has gone, it
leaves a ticket that nobody heeds, since it has become a claim (`turns.served_in`): the resource
remembers that as long as it is there, and whoever has it next takes that ticket away.

Fences. A fence is 1000 times the resourceVersion of the view that the claim was made by, and the
number of the resource in it. That view shows the claim before, if only by its release, and so is
later than that one's: fences of a resource grow. So do those of a pool, from one claim to the next
that has seen it; and by them the least recently acquired is known. Where a cluster was restored and
its versions are smaller than they were, what the resource remembers of its last fence counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from leasectl.engines.contract import LostListener
from leasectl.engines.kubernetes.events.events import TAKEN_OVER, KubernetesEvents
from leasectl.engines.kubernetes.objects.bodies import micro_time
from leasectl.engines.kubernetes.objects.names import object_of_resource
from leasectl.engines.kubernetes.objects.objects import Claim, ResourceObject
from leasectl.engines.kubernetes.objects.reading import parse_object
from leasectl.engines.kubernetes.objects.recognition import (
    is_freed_by,
    is_made_by,
    is_of,
    is_same,
    resource_in,
)
from leasectl.engines.kubernetes.objects.resource_bodies import claimed, released, with_member
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.membership import Member, after_lifetime, after_release
from leasectl.errors import BackendUnreachable
from leasectl.model import Lease, ReleasedBy
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.objects.view import PoolView
    from leasectl.engines.kubernetes.queues.observed import Observed
    from leasectl.engines.kubernetes.queues.ticket import OwnTicket

_MOST_TRIES = 10


class Claims:
    """The claims in one namespace.

    Args:
        store: Where they are.
        observed: What was seen of others' lives.
        lost: Told, by whoever notices, of claims that were over or taken by force.
        clock: Where times come from.
        events: Of what happens here.

    Attributes:
        events: As given.
    """

    def __init__(
        self,
        store: Store,
        observed: Observed,
        *,
        lost: LostListener,
        clock: Clock,
        events: KubernetesEvents,
    ) -> None:
        self._store = store
        self._observed = observed
        self._lost = lost
        self._clock = clock
        self.events = events
        self._held: dict[str, ResourceObject] = {}  # as written here last, by the objects' names
        self._sent: dict[str, float] = {}  # when that was sent, likewise
        self._complete: set[str] = set()  # the claim keys of which nothing is missing in `_held`

    # Making them

    def make(
        self, own: OwnTicket, view: PoolView, chosen: Sequence[ResourceObject]
    ) -> tuple[Lease, ...] | None:
        """Claim resources for a ticket, all or none.

        Args:
            own: Whose they become.
            view: What was seen, that they are free or over and its turn.
            chosen: As they were seen.

        Returns:
            The leases; None where somebody was faster.

        Raises:
            BackendUnreachable: Some may be claimed; `find` tells.
        """
        from leasectl.engines.kubernetes.claims.new_claims import claims_of

        at = self.events.now()
        claims = claims_of(own, view, chosen, wall=self._clock.wall())
        own.claim_sent_at = self._clock.elapsed()
        own.unsure = tuple(chosen)
        made: list[ResourceObject] = []
        for resource, claim in zip(chosen, claims):
            done = self._write_claim(resource, claim)
            if done is None:
                self._give_back(made)
                own.unsure = ()
                return None
            if resource.claim is not None:
                self.events.ended([resource], by="ttl", at=at, title=TAKEN_OVER)
                self._tell_lost(resource)
            made.append(done)
        own.unsure = ()
        for each in made:
            self.note(each, own.claim_sent_at)
        self.note_complete(own.claimant.claim_key)
        return tuple(claim.lease(each.name) for each, claim in zip(chosen, claims))

    def make_one(
        self, own: OwnTicket, view: PoolView, chosen: ResourceObject, number: int
    ) -> tuple[Lease, ...] | None:
        """Claim one resource past the queue, with whatever else becomes of it in the same write.

        Args:
            own: Whose it becomes, which waits in no queue.
            view: Later than what was seen of the resource.
            chosen: It, as it is to be but for the claim.
            number: Of the resource, among those that are claimed so.
        """
        from leasectl.engines.kubernetes.claims.new_claims import claims_of

        (claim,) = claims_of(own, view, [chosen], wall=self._clock.wall(), first=number)
        own.claim_sent_at = self._clock.elapsed()
        done = self._write_claim(chosen, claim)
        if done is None:
            return None
        self.note(done, own.claim_sent_at)
        return (claim.lease(chosen.name),)

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
        return _leases(found) or None

    def give_back(self, own: OwnTicket) -> None:
        """Free whatever a ticket has become."""
        self._give_back(self._made_at_last(own))
        own.unsure = ()

    def _give_back(self, made: Iterable[ResourceObject]) -> None:
        for each in made:
            self.release(each, by="command", is_had=False)

    def _made_at_last(self, own: OwnTicket) -> list[ResourceObject]:
        from leasectl.engines.kubernetes.claims.late_writes import made_at_last

        return made_at_last(own.unsure, lambda: self._made_of(own), self._store)

    def _made_of(self, own: OwnTicket) -> list[ResourceObject]:
        found = self.of_key(own.claimant.claim_key)
        return [each for each in found if each.claim and each.claim.ticket == own.object_name]

    def _write_claim(self, resource: ResourceObject, claim: Claim) -> ResourceObject | None:
        return resource_in(self._store.change(claimed(resource, claim), is_of(claim)).raw)

    # Finding them

    def of_key(self, claim_key: str) -> list[ResourceObject]:
        """The resources that a claim key finds, also what of it is over or ended by force."""
        written = self._store.with_state_id(claim_key)
        found = map(parse_object, self._store.of_claim(claim_key, "resource").items)
        held = [
            each
            for each in found
            if isinstance(each, ResourceObject) and each.claim and each.claim.claim_key == written
        ]
        return sorted(held, key=_by_fence)

    def of_names(self, claim_key: str, names: Iterable[str]) -> list[ResourceObject]:
        """Those of some names that a claim key finds: as written here last, or as they are."""
        written = self._store.with_state_id(claim_key)
        found = []
        for name in dict.fromkeys(names):
            known = self._held.get(object_of_resource(name))
            resource = known or self._store.resource(name)
            if resource and resource.claim and resource.claim.claim_key == written:
                found.append(resource)
        return sorted(found, key=_by_fence)

    def known(self, claim_key: str) -> list[ResourceObject]:
        """What a claim key finds, as written here last; empty where some of it isn't known."""
        written = self._store.with_state_id(claim_key)
        if written not in self._complete:
            return []
        held = list(self._held.values())
        return sorted((each for each in held if _key_in(each) == written), key=_by_fence)

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
        end = self._observed.claim_end(resource)
        return end is not None and end <= now

    def renewal_of(self, claim: Claim) -> Claim:
        """The same claim, with its full time again from now on."""
        now = self._clock.wall()
        return claim._replace(renewed=micro_time(now, after=claim.renewed), renew_time=now)

    # Ending them

    def free(
        self, claim_key: str, names: Sequence[str] | None, *, by: ReleasedBy
    ) -> tuple[str, ...]:
        """Implements `Engine.free`."""
        if names is None:
            held = self.of_key(claim_key)
        else:  # what was ended by force is given up with all the rest
            found = self.of_names(claim_key, names)
            held = [each for each in found if each.claim and not each.claim.ended]
        at = self.events.now()
        freed: list[ResourceObject] = []
        try:
            for each in held:
                freed += self._free(each, by)
        finally:  # some may have been, although others couldn't be
            self.events.ended(freed, by=by, at=at)
        return tuple(each.name for each in freed if each.claim and not each.claim.ended)

    def _free(self, resource: ResourceObject, by: ReleasedBy) -> list[ResourceObject]:
        """Free a claim for its holder; returns it as it was then, if it was still its own."""
        there: ResourceObject | None = resource
        while there is not None and self.is_over(there):
            if self.end_over(there):
                return []
            there = self.as_it_is(there)
        if there is None or there.claim is None or not self.release(there, by=by):
            return []
        return [there]

    def as_it_is(self, seen: ResourceObject) -> ResourceObject | None:
        """What is there now of a claim that couldn't be ended as it was seen; None if it has gone.

        Who has claimed isn't always who renews: a keeper does, with a memory of its own.
        """
        assert seen.claim is not None
        self.forget(seen.id.name)
        there = resource_in(self._store.get(seen.id.name))
        if there is None or there.claim is None or not is_same(there.claim, seen.claim):
            return None
        return there

    def release(self, resource: ResourceObject, *, by: ReleasedBy, is_had: bool = True) -> bool:
        """End a claim; returns whether this did it, and nobody else."""
        seen: ResourceObject | None = resource
        for _ in range(_MOST_TRIES):
            if seen is None:
                return False
            self.forget(seen.id.name)
            if self._end(seen, is_had=is_had):
                return True
            seen = self.as_it_is(seen)
        raise BackendUnreachable(
            f'resource "{resource.name}" is changed faster than it can be released; try again'
        )

    def release_as_seen(self, resource: ResourceObject) -> bool:
        """End a claim if nobody has written anything there since; returns whether that is so."""
        self.forget(resource.id.name)
        return self._end(resource)

    def end_over(self, resource: ResourceObject) -> bool:
        """Free a claim that is over, and tell of it, unless it was renewed since it was seen."""
        at = self.events.now()
        if not self._end(resource):
            return False
        self.forget(resource.id.name)
        self.events.ended([resource], by="ttl", at=at)
        self._tell_lost(resource)
        return True

    def _end(self, resource: ResourceObject, *, is_had: bool = True) -> bool:
        member = after_release(resource.member)
        if not member.is_known:  # it leaves its pool, and nothing else is said of it
            is_done = self._store.delete(resource.id, as_seen=True)
        else:
            body = released(resource, member, is_had=is_had)
            is_done = self._store.change(body, is_freed_by(body)).raw is not None
        return is_done and self._note_changed(resource.member, member)

    def end_life(self, resource: ResourceObject) -> bool:
        """Have a name leave its pool whose time there is over, or as soon as nobody holds it."""
        member = after_lifetime(resource.member)
        if not member.is_known:
            is_done = self._store.delete(resource.id, as_seen=True)
        else:
            body = with_member(resource, member)
            is_done = self._store.change(body, is_made_by(body)).raw is not None
        return is_done and self._note_changed(resource.member, member)

    def _note_changed(self, before: Member, after: Member) -> Literal[True]:
        if before != after._replace(holder=before.holder):
            self.events.members_changed([before], [after], at=self.events.now())
        return True

    def _tell_lost(self, resource: ResourceObject) -> None:
        """Tell who held something that it is over; who isn't of leasectl isn't told."""
        if resource.claim is not None and resource.claim.claim_key:
            self._lost(self._store.claim_key_of(resource.claim.claim_key), [resource.name])

    # What is remembered of those that were written here

    def note(self, resource: ResourceObject, sent_at: float) -> None:
        """A claim has its full time since something was sent, on the elapsed clock."""
        before = self._held.get(resource.id.name)
        if _key_in(before) != _key_in(resource):
            self.forget(resource.id.name)
        self._held[resource.id.name] = resource
        self._sent[resource.id.name] = sent_at
        self._observed.note(resource)

    def note_complete(self, claim_key: str) -> None:
        """All that a claim key finds has been noted, and what has gone is forgotten."""
        written = self._store.with_state_id(claim_key)
        if any(_key_in(each) == written for each in list(self._held.values())):
            self._complete.add(written)

    def forget(self, object_name: str) -> None:
        """A claim isn't as it was written here any more, or not for long."""
        self._complete.discard(_key_in(self._held.pop(object_name, None)))
        self._sent.pop(object_name, None)


def _leases(resources: Iterable[ResourceObject]) -> tuple[Lease, ...]:
    return tuple(each.claim.lease(each.name) for each in resources if each.claim is not None)


def _key_in(resource: ResourceObject | None) -> str:
    return resource.claim.claim_key if resource is not None and resource.claim is not None else ""


def _by_fence(resource: ResourceObject) -> tuple[int, str]:
    return (resource.claim.fence if resource.claim else 0, resource.name)
