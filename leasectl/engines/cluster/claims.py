"""Make and give back claims.

Exclusion: a claim is a write to the object of its resource, guarded by the version at which the
resource was seen free or over. Of two processes that saw the same version, the store lets one
succeed. Exclusion depends on nothing else: not on the queue, the age of a view or a ticket. A
holder writes only to its own claim, so one that was taken over never overwrites its successor. Time
matters only when a claim is over (`observed`). The holder counts its time from the sending of the
last renewal, so its time ends first.

All or nothing: where the store unites changes (`Objects.unites`), the claims of N resources and the
removal of the ticket are one write. Elsewhere N resources are N writes, in the order of
`turns.free_in`, which is the same for all. A request for resources of several pools has a ticket in
each, and claims for all of them in this way. A process that loses one of them gives back the others
and then waits with a ticket. From then on only the ticket whose turn it is claims, so no two
processes starve each other.

A process that is killed between two of those writes leaves a part of a claim. The record of its
handle has the claim key, so the keeper or the next command frees it; with a ttl, which is the
default here, it also expires. A process that is killed after the last write leaves a ticket that
has become a claim. Others ignore that ticket, since the resource names it, and the next holder
removes it.

Pace: in a pool with a pace, the grant is paid for with the claim. Where the store doesn't unite
changes it is paid before, and so a claim that loses a race costs a pace.

Fences: a fence is 1000 times the version of the view that the claim was made from, plus the number
of the resource in the claim. That view shows the previous claim or its release, so the fences of a
resource grow. After a restore with smaller versions, the last fence that the resource remembers
counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.cluster.changes import claimed, released, revoked, touched
from leasectl.engines.cluster.events import TAKEN_OVER
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    Claim,
    PoolObject,
    ResourceObject,
    TicketObject,
    Told,
    as_resource,
    by_fence,
    is_same,
    stamp,
    too_fast,
)
from leasectl.engines.cluster.records import parse_time
from leasectl.engines.cluster.turns import seconds_left, with_grant
from leasectl.engines.notes import Note
from leasectl.engines.rules.membership import after_release
from leasectl.model import Lease, ReleasedBy

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context
    from leasectl.engines.cluster.ticket import OwnTicket
    from leasectl.engines.cluster.view import PoolView

FENCES_PER_VERSION = 1000
# Some requests to a server that has answered just before.
_REMOVAL_SECONDS = 3.0


class Part(NamedTuple):
    """What a ticket is to become.

    Args:
        own: The ticket.
        view: What was seen: that it is its turn, and its resources are free or over.
        chosen: These resources, as they were seen.
    """

    own: OwnTicket
    view: PoolView
    chosen: Sequence[ResourceObject]


class Claims:
    """The claims in one place.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._observed = context.observed
        self._events = context.events
        self._clock = context.clock
        # As written here last, and when that was sent, by the objects' names:
        self._held: dict[str, tuple[ResourceObject, float]] = {}
        self._complete: set[str] = set()  # the claim keys of which nothing is missing in `_held`

    # Making them

    def take(self, parts: Sequence[Part]) -> tuple[Lease, ...] | None:
        """Claim what was found; return the leases, or None if another was faster.

        Args:
            parts: What each ticket of one request is to become.

        Raises:
            TicketExpired: Others may have taken one of the tickets for dead by now.
            BackendUnreachable: Some may be claimed; `take_unsure` tells.
        """
        for each in parts:
            if each.own.is_overdue:
                raise each.own.expired()
        besides, paid = [], []
        for each in parts:
            changes = self._pay(each)
            if changes is None:
                return None
            besides += changes
            paid += [each.new for each in changes if isinstance(each.new, PoolObject)]
        made = self.make(parts, besides)
        if made is None:
            return None
        for pool in paid:  # all of this state directory know since when that grant is there
            seconds_left(pool, self._observed, self._clock.elapsed())
        if paid:
            self._observed.save()
        left = []
        for _, view, chosen in parts:
            had = {name for each in chosen for name in each.had_by} & view.served()
            left += [view.tickets[name] for name in had]
        return self._granted([each.own for each in parts], made, left)

    def take_unsure(self, owns: Sequence[OwnTicket]) -> tuple[Lease, ...] | None:
        """Return the leases of claims whose answers were lost; give a part of them back.

        Args:
            owns: The tickets that were to become them together.
        """
        found = [self._made_at_last(each) for each in owns]
        if [len(each) for each in found] != [each.request.count for each in owns]:
            self.release(list(chain(*found)), is_had=False)
            found = []
        for own in owns:
            own.unsure = ()
        return self._granted(owns, self._note_all(owns, found)) if found else None

    def _pay(self, part: Part) -> list[Change] | None:
        """Return what changes with a claim besides its resources; None if another was faster.

        Where changes aren't united, the pool's pace is paid by now.
        """
        own, pool = part.own, part.view.pool
        assert pool is not None
        besides = []
        if pool.settings.pace_seconds and not own.has_paid:
            paid = with_grant(pool, own.object_name, self._observed, self._clock.elapsed())
            besides.append(Change(pool, paid))
        if self._objects.unites:
            ticket = part.view.tickets.get(own.object_name) or own.object
            return besides if ticket is None else [*besides, Change(ticket, None)]
        for change in besides:
            written = self._objects.write(change).object
            if not isinstance(written, PoolObject):
                return None
            own.has_paid = True
            part.view.put(written)
            return [Change(pool, written)]
        return []

    def _granted(
        self,
        owns: Sequence[OwnTicket],
        made: Sequence[tuple[Lease, ...]],
        left: Sequence[TicketObject] = (),
    ) -> tuple[Lease, ...]:
        """Return the leases that tickets have become.

        Args:
            owns: The tickets.
            made: The leases of each.
            left: The tickets that earlier holders of their resources have left.
        """
        ttl, sent_at = owns[0].request.ttl_seconds, min(each.claim_sent_at for each in owns)
        if ttl is not None and self._clock.elapsed() - sent_at >= ttl:
            for own in owns:  # the answers came after the ttl, so others may hold the resources
                self.give_back(own)
            raise owns[0].expired()
        if not self._objects.unites:
            known = self.known(owns[0].claimant.claim_key)
            for own, leases in zip(owns, made):
                of_own = [each for each in known if each.member.pool == own.request.type]
                self._objects.tell(own.told_of_grant(leases, of_own))
            tried = [each for each in owns if each.is_tried]
            if tried or left:
                from leasectl.system.afterwards import begin

                begin(partial(self._take_away, tried, left))
        return tuple(chain(*made))

    def _take_away(self, owns: Sequence[OwnTicket], left: Sequence[TicketObject]) -> None:
        """Remove tickets that have become claims, and those that others left.

        The grant doesn't wait for that. A process that is killed before leaves its tickets, and
        each resource remembers that its ticket has become a claim. The next holder of the resource
        removes that, too; otherwise it expires with its ttl.
        """
        with self._objects.limited(self._clock.elapsed() + _REMOVAL_SECONDS):
            for own in owns:
                self._objects.remove(own.as_put())
            for each in left:
                pool_watch = self._context.session.pool_watch(each.pool)
                seen = None if pool_watch is None else pool_watch.view()
                if seen is None or each.id.name in seen.tickets:
                    self._objects.remove(each)

    def make(
        self, parts: Sequence[Part], besides: Sequence[Change] = ()
    ) -> list[tuple[Lease, ...]] | None:
        """Claim resources for the tickets of a request, all or none.

        Args:
            parts: What each of them becomes.
            besides: What else changes with that, where the store unites it.

        Returns:
            The leases of each; None if another claim was faster.

        Raises:
            BackendUnreachable: Some may be claimed; `take_unsure` tells.
        """
        new: list[list[ResourceObject]] = []
        for own, view, chosen in parts:
            claims = self._claims_of(own, view, chosen, first=sum(map(len, new)))
            own.claim_sent_at = self._clock.elapsed()
            own.unsure = tuple(chosen)
            new.append([claimed(resource, claim) for resource, claim in zip(chosen, claims)])
        if self._objects.unites:
            made = self._make_at_once(parts, new, besides)
        else:
            made = self._make_one_by_one(parts, new)
        for each in parts:
            each.own.unsure = ()
        if made is None:
            return None
        for part in parts:
            for resource in part.chosen:
                if resource.claim is not None:
                    self._context.tell_lost(resource)
        return self._note_all([each.own for each in parts], made)

    def _make_one_by_one(
        self, parts: Sequence[Part], new: Sequence[Sequence[ResourceObject]]
    ) -> list[list[ResourceObject]] | None:
        at = self._events.now()
        made: list[list[ResourceObject]] = [[] for _ in parts]
        for of_part, part, wanted in zip(made, parts, new):
            for seen, each in zip(part.chosen, wanted):
                over = self._events.ended([seen], by="ttl", at=at, title=TAKEN_OVER)
                done = self._objects.write(Change(seen, each, over)).resource
                if done is None:
                    self.release(list(chain(*made)), is_had=False)
                    return None
                of_part.append(done)
        return made

    def _make_at_once(
        self,
        parts: Sequence[Part],
        new: Sequence[Sequence[ResourceObject]],
        besides: Sequence[Change],
    ) -> list[list[ResourceObject]] | None:
        chosen = list(chain(*(each.chosen for each in parts)))
        told = self._events.ended(chosen, by="ttl", at=self._events.now(), title=TAKEN_OVER)
        for part, of_part in zip(parts, new):
            told += part.own.told_of_grant(leases_of(of_part), of_part)
        changes = [*map(Change, chosen, chain(*new)), *besides]
        changed = {each.seen.id.name for each in changes if each.seen is not None}
        pools = [each.view.pool for each in parts]  # they may be about to be deleted
        done = self._objects.write_together(
            changes,
            still={each.id.name: each for each in pools if each and each.id.name not in changed},
            # A claim without a ticket must not pass a ticket that was put since.
            unqueued=next((own.request.type for own, *_ in parts if own.object is None), None),
            told=told,
        )
        if done is None:
            return None
        left = iter(done)
        made = [list(islice(left, len(each))) for each in new]
        return [[each for each in found if isinstance(each, ResourceObject)] for found in made]

    def change_by(
        self,
        own: OwnTicket,
        view: PoolView,
        seen: ResourceObject | None,
        chosen: ResourceObject,
        number: int,
    ) -> Change:
        """Return the change that claims one resource past the queue, with its other changes.

        Args:
            own: Whose it becomes, which waits in no queue.
            view: Later than what was seen of the resource.
            seen: The resource as it was seen; None if it isn't there.
            chosen: It, as it is to be but for the claim.
            number: Of the resource, among those that are claimed so.
        """
        (claim,) = self._claims_of(own, view, [chosen], first=number)
        own.claim_sent_at = self._clock.elapsed()
        return Change(seen, claimed(chosen, claim))

    def note_made(self, own: OwnTicket, made: ResourceObject) -> tuple[Lease, ...]:
        """Note a resource that `change_by` has claimed; return its lease."""
        self.note(made, own.claim_sent_at)
        return leases_of([made])

    def _note_all(
        self, owns: Sequence[OwnTicket], made: Sequence[Sequence[ResourceObject]]
    ) -> list[tuple[Lease, ...]]:
        """Note all that some tickets of a request have become; return the leases of each."""
        for own, of_own in zip(owns, made):
            for each in of_own:
                self.note(each, own.claim_sent_at)
        self.note_complete(owns[0].claimant.claim_key)
        return list(map(leases_of, made))

    def give_back(self, own: OwnTicket) -> None:
        """Free whatever a ticket has become."""
        self.release(self._made_at_last(own), is_had=False)
        own.unsure = ()

    def _made_at_last(self, own: OwnTicket) -> list[ResourceObject]:
        """Return what has become of a claim; nothing more becomes of it after that.

        A write whose answer is late may itself be late. It could be carried out after its waiter
        has looked, found nothing, and been granted another resource. No record would have that
        claim then, and renewals by the claim key would keep it alive. So each resource that the
        claim was sent to is written once more if it is still as it was seen: a write guarded by
        that version is refused from then on.

        Raises:
            BackendUnreachable: It isn't known yet.
        """
        found = self._made_of(own)
        there = {each.id.name for each in found}
        missing = [each for each in own.unsure if each.id.name not in there]
        untouched = [self._objects.write(Change(each, touched(each))).is_done for each in missing]
        return found if all(untouched) else self._made_of(own)

    def _made_of(self, own: OwnTicket) -> list[ResourceObject]:
        found = self._context.claimed(own.claimant.claim_key)
        return [each for each in found if each.claim and each.claim.ticket == own.object_name]

    # Finding them

    def of_names(self, claim_key: str, names: Iterable[str]) -> list[ResourceObject]:
        """Those of some names that a claim key finds: as written here last, or as they are."""
        written = self._context.with_state_id(claim_key)
        found = []
        for name in dict.fromkeys(names):
            known, _ = self._held.get(self._objects.name_of("resource", name), (None, 0.0))
            resource = known or self._context.resource(name)
            if resource and resource.claim and resource.claim.claim_key == written:
                found.append(resource)
        return sorted(found, key=by_fence)

    def known(self, claim_key: str) -> list[ResourceObject]:
        """What a claim key finds, as written here last; empty where some of it isn't known."""
        written = self._context.with_state_id(claim_key)
        if written not in self._complete:
            return []
        held = [each for each, _ in list(self._held.values())]
        return sorted((each for each in held if _key_in(each) == written), key=by_fence)

    def is_over(self, resource: ResourceObject) -> bool:
        """Tell whether the time of a claim is over, its holder's own or as it was observed."""
        claim = resource.claim
        if claim is None or claim.ttl_seconds is None:
            return False
        now = self._clock.elapsed()
        known, sent_at = self._held.get(resource.id.name, (None, 0.0))
        is_known = known is not None and known.claim is not None and known.claim.mark == claim.mark
        if is_known and sent_at + claim.ttl_seconds <= now:
            return True
        end = self._observed.claim_end(resource)
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
            held = self._context.claimed(claim_key)
        else:  # what was ended by force is given up with all the rest
            found = self.of_names(claim_key, names)
            held = [each for each in found if each.claim and not each.claim.ended]
        freed = self.release(held, by, is_holder=True)
        return tuple(each.name for each in freed if each.claim and not each.claim.ended)

    def release(
        self,
        held: Sequence[ResourceObject],
        by: ReleasedBy | None = None,
        *,
        reason: str = "",
        is_holder: bool = False,
        is_had: bool = True,
    ) -> list[ResourceObject]:
        """End claims, however they were written since they were seen.

        Args:
            held: Their resources.
            by: Who or what ends them; None to tell nothing of that.
            reason: For people.
            is_holder: Their holder does: it has lost those whose time is over.
            is_had: Their holder got what it had waited for, as `changes.released` has it.

        Returns:
            The resources whose claims this call has ended, as they were then.
        """
        done: list[ResourceObject] = []
        for _ in range(MOST_TRIES):
            if is_holder:
                held = self._without_expired(held)
            done += self.release_as_seen(held, by, reason=reason, is_had=is_had)
            held = self._left(held, done)
            if not held:
                return done
        raise too_fast(f'resource "{held[0].name}"')

    def release_as_seen(
        self,
        held: Sequence[ResourceObject],
        by: ReleasedBy | None = None,
        *,
        reason: str = "",
        is_had: bool = True,
    ) -> list[ResourceObject]:
        """End claims if their resources weren't written since they were seen; as `release`."""
        at = self._events.now()
        for each in held:
            self.forget(each.id.name)

        def change_of(seen: ResourceObject) -> Change:
            member = after_release(seen.member)
            # What leaves its pool goes, unless something else is said of it.
            new = released(seen, member, is_had=is_had) if member.is_known else None
            return Change(seen, new)

        def told(done: Sequence[ResourceObject]) -> Sequence[Told]:
            before = [each.member for each in done]
            ends = () if by is None else self._events.ended(done, by=by, at=at, reason=reason)
            after = list(map(after_release, before))
            return (*ends, *self._events.members_changed(before, after, at=at))

        return self._context.write_all(held, change_of, told)

    def as_it_is(self, seen: ResourceObject) -> ResourceObject | None:
        """Return a resource as it is now; None if it hasn't the claim any more that was seen.

        It may have been renewed by another process than its claimant, a keeper for example.
        """
        assert seen.claim is not None
        self.forget(seen.id.name)
        there = as_resource(self._objects.read(seen.id.name))
        if there is None or there.claim is None or not is_same(there.claim, seen.claim):
            return None
        return there

    def _left(
        self, held: Sequence[ResourceObject], done: Sequence[ResourceObject]
    ) -> list[ResourceObject]:
        """Return those claims that weren't ended and are still there, as they are now."""
        there = [self.as_it_is(each) for each in held if each not in done]
        return [each for each in there if each is not None]

    def expire(self, resource: ResourceObject) -> bool:
        """Free a claim that is over, and tell of it, unless it was renewed since it was seen."""
        if not self.release_as_seen([resource], "ttl"):
            return False
        self._context.tell_lost(resource)
        return True

    def _without_expired(self, held: Sequence[ResourceObject]) -> list[ResourceObject]:
        return [each for each in held if not (self.is_over(each) and self.expire(each))]

    def revoke(
        self, claim_key: str, names: Sequence[str], reason: str, *, at_once: bool
    ) -> tuple[str, ...]:
        """Implements `PoolAdmin.end_early`; a guard can't be seen from here.

        A claim without a ttl is free at once. A claim with a ttl is only marked as ended, in its
        object: its holder learns that from a watch, or from its next renewal, which changes nothing
        any more. The time of the last renewal stays as it is. So the claim is over when that is,
        for every observer, and at once when its holder gives it up.

        With `at_once`, it is marked first, too, and then freed. If this process is killed in
        between, the claim stays marked, and the next call frees it.
        """
        taken: list[str] = []
        held = self._named(claim_key, names)
        for _ in range(MOST_TRIES):
            good = [each for each in held if each.claim and not each.claim.ended]
            good = self._without_expired(good)
            free = [each for each in good if each.claim and each.claim.ttl_seconds is None]
            kept = [each for each in good if each not in free]
            done = self._revoke_kept(kept, reason)
            freed = self.release(free, "force", reason=reason)
            taken += [each.name for each in (*done, *freed)]
            held = self._left(kept, done)
            if not held:
                break
        if taken:
            self._context.lost(claim_key, taken)
        if at_once:
            found = self._named(claim_key, names)
            kept = [each for each in found if each.claim and each.claim.ended]
            freed = self.release(kept, "force", reason=reason)
            taken += [each.name for each in freed if each.name not in taken]
        return tuple(taken)

    def _named(self, claim_key: str, names: Sequence[str]) -> list[ResourceObject]:
        return [each for each in self._context.claimed(claim_key) if each.name in names]

    def _revoke_kept(self, held: Sequence[ResourceObject], reason: str) -> list[ResourceObject]:
        """Mark claims as ended; return those that weren't written since they were seen."""
        at = self._events.now()
        lives: dict[str, str] = {}  # by the old ones: claims that ended together still do

        def change_of(seen: ResourceObject) -> Change:
            assert seen.claim is not None
            life = lives.setdefault(seen.claim.life, self._objects.new_life())
            return Change(seen, revoked(seen, reason, life))

        def told(done: Sequence[ResourceObject]) -> Sequence[Told]:
            return self._events.lost(done, by="force", at=at, reason=reason)

        return self._context.write_all(held, change_of, told)

    def _claims_of(
        self,
        own: OwnTicket,
        view: PoolView,
        chosen: Sequence[ResourceObject],
        *,
        first: int = 0,
    ) -> list[Claim]:
        """The claims that a ticket becomes, one for each resource; `claims` says what of fences.

        Args:
            own: Whose they become.
            view: What was seen, from which they are told.
            chosen: The resources, as they were seen.
            first: The number of the first resource, among those that are claimed so.
        """
        claimant, renewed = own.claimant, stamp(self._clock.wall())
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
        before, _ = self._held.get(resource.id.name, (None, 0.0))
        if _key_in(before) != _key_in(resource):
            self.forget(resource.id.name)
        self._held[resource.id.name] = resource, sent_at
        self._observed.note(resource)

    def note_complete(self, claim_key: str) -> None:
        """All that a claim key finds has been noted, and what has gone is forgotten."""
        written = self._context.with_state_id(claim_key)
        if any(_key_in(each) == written for each, _ in list(self._held.values())):
            self._complete.add(written)

    def forget(self, object_name: str) -> None:
        """A claim isn't as it was written here any more, or not for long."""
        known, _ = self._held.pop(object_name, (None, 0.0))
        self._complete.discard(_key_in(known))


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
