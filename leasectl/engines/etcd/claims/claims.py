"""Make claims, give them back, and free those that have run out.

A claim that has run out is still written down under ``held/`` while its ``alive/`` has gone with
the etcd lease. Whoever sees that puts its resources back among the free ones, and tells of it.

But not before the time that its last renewal gave it, as `EarlyEnds` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims.early_ends import EarlyEnds
from leasectl.engines.etcd.claims.ends import ClaimEnds
from leasectl.engines.etcd.claims.making import making
from leasectl.engines.etcd.claims.view import ClaimView, claim_reads, parse_claim_view
from leasectl.engines.etcd.claims.writes import Along
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    read,
    read_all,
)
from leasectl.engines.etcd.key_values import claim_id_in, etcd_lease_id_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.queues.view import QueueView
from leasectl.engines.etcd.records import Claim, Free, parse_claim
from leasectl.model import ReleasedBy, Ticket
from leasectl.system.clock import Clock, earliest


class Reaped(NamedTuple):
    """What came of freeing what has run out.

    Args:
        any: Something was freed, or had just been.
        next_at: When there is something to free, on the elapsed clock, that has run out too early.
    """

    any: bool
    next_at: float | None


class Made(NamedTuple):
    """A claim that was made.

    Args:
        claim: As it was written.
        waiting: How many then waited on, in a pool with a pace; 0 also where that isn't known.
    """

    claim: Claim
    waiting: int


class FoundClaim(NamedTuple):
    """A claim that was good when it was read.

    Args:
        id: Which.
        claim: What it says.
        held: Where it was read.
    """

    id: ClaimId
    claim: Claim
    held: KeyValue


class EtcdClaims:
    """The claims below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for each that is made, and for its end.
        lost: Told, by whoever notices, of claims that expired or were taken by force.
        clock: Where times come from.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        events: EtcdEvents,
        *,
        lost: LostListener,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._lost = lost
        self._clock = clock
        self._ends = ClaimEnds(gateway, keys, events, clock=clock)
        self._early = EarlyEnds(gateway, keys, clock=clock)
        self._made: dict[str, tuple[str, Claim]] = {}  # by name: its pool, and its last claim here

    def make(
        self,
        ticket: Ticket,
        etcd_lease_id: int,
        renewed: float,
        view: QueueView,
        chosen: Sequence[Free],
        *,
        waited: float,
        level: float | None = None,
    ) -> Made | None:
        """Make a claim of a ticket, if nobody has got in before it.

        Args:
            ticket: It is taken away.
            etcd_lease_id: Of the etcd lease that it is attached to; so is the claim, if it expires.
            renewed: When that etcd lease was last kept alive, wall clock, in seconds.
            view: What was seen, of a pool that is there.
            chosen: What to claim.
            waited: Since the request was made, in seconds.
            level: What the pool's grants then owe its pace; None for a pool without one.

        Returns:
            The claim; None when the ticket, the pool or one of those chosen has changed, or
            somebody better has come.

        Raises:
            EtcdLeaseGone: The etcd lease has run out.
        """
        claim, held, guards, then = making(
            self._keys,
            ticket,
            etcd_lease_id,
            renewed,
            view,
            chosen,
            now=self._clock.wall(),
            level=level,
        )
        pool_type = ticket.claimant.request.type
        event = event_facts.granted(ticket, claim, waited=waited)
        outcome = self._events.commit(guards, then, [read(held)], events=[event])
        waiting = 0
        if outcome.succeeded:
            made = claim._replace(revision=outcome.revision)
            waiting = sum(found.count for found in outcome.answers)
        else:
            (found,) = outcome.answers
            if found.first is None:
                return None
            made = parse_claim(found.first)  # by an earlier try, whose answer was lost
        self._made.update((name, (pool_type, made)) for name in made.names)
        return Made(made, waiting)

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy
    ) -> tuple[str, ...]:
        """Implements `Engine.free`."""
        freed = self._free_as_made(claim_key, frozenset(names or ()), by)
        if freed:
            return tuple(name for _, name in sorted(freed))
        for claim_id in self.index(claim_key):
            wanted = None if names is None else frozenset(names)
            freed += self.give_back(claim_id, wanted, by=by)
        return tuple(name for _, name in sorted(freed))

    def give_back(
        self,
        claim_id: ClaimId,
        names: frozenset[str] | None = None,
        *,
        by: ReleasedBy,
        reason: str = "",
    ) -> list[tuple[int, str]]:
        """Free a claim, all of it or some; returns what was its own, with the fences.

        Args:
            claim_id: Which.
            names: Of it; None for all.
            by: Who ends it, for the record of events.
            reason: Likewise; who does it by force.
        """
        while True:
            view = self._look(claim_id)
            if view.held is None:
                return []
            claim = parse_claim(view.held)
            if not view.is_alive:
                if names is None or not names.isdisjoint(claim.names):
                    self.reap_one(claim_id, view, by_holder=True)
                return []
            gone = frozenset(claim.names) if names is None else names & frozenset(claim.names)
            freed = [(f, name) for f, name in zip(claim.fences, claim.names) if name in gone]
            if not freed or self._ends.end(
                claim_id, claim, view.held, gone, is_alive=True, by=by, reason=reason
            ):
                return freed

    def end_kept(self, claim_id: ClaimId, names: frozenset[str], *, reason: str) -> tuple[str, ...]:
        """Free names of a claim that has gone and is kept for its holder; return them."""
        while True:
            view = self._look(claim_id)
            if view.held is None or view.is_alive:
                return ()
            claim = parse_claim(view.held)
            freed = tuple(name for name in claim.names if name in names)
            if not freed:
                return ()
            if self._ends.end(
                claim_id,
                claim,
                view.held,
                frozenset(freed),
                is_alive=False,
                by="force",
                reason=reason,
            ):
                if not claim.ended:  # else its holder has been told
                    self._lost(self._keys.claim_key_of(claim.claim_key), freed)
                return freed

    def give_back_with(
        self, found: FoundClaim, names: frozenset[str], along: Along, *, by: ReleasedBy = "command"
    ) -> bool:
        """Free some of a claim that is as it was found, and do something else with that.

        Args:
            found: The claim.
            names: Of it.
            along: What else.
            by: Who ends it, for the record of events.

        Returns:
            Whether that has been done; else it isn't so any more, or a guard doesn't hold.
        """
        claim_id, claim, held = found
        return self._ends.end(claim_id, claim, held, names, is_alive=True, by=by, along=along)

    def find(self, claim_key: str, name: str, fence: int) -> FoundClaim | None:
        """The claim of a resource with that fence that a claim key finds, if it is good."""
        for claim_id in self.index(claim_key):
            view = self._look(claim_id)
            if view.held is None or not view.is_alive:
                continue
            claim = parse_claim(view.held)
            if not claim.ended and (name, fence) in zip(claim.names, claim.fences):
                return FoundClaim(claim_id, claim, view.held)
        return None

    def index(self, claim_key: str) -> tuple[ClaimId, ...]:
        """The claims that are found by a claim key, in the order of their ids."""
        found, now = self._gateway.read(
            read_all(self._keys.all_owned(claim_key)), self._events.read_now()
        ).answers
        self._events.note_now(now.first)
        return tuple(map(claim_id_in, found.items))

    def claim_keys(self) -> list[str]:
        """The claim keys of this state directory that have claims, sorted."""
        prefix = self._keys.all_owned_here()
        (found,) = self._gateway.read(read_all(prefix, keys_only=True)).answers
        return sorted({kv.key[len(prefix) :].rpartition("/")[0] for kv in found.items})

    def reap(self, pool_type: str) -> Reaped:
        """Free what is still written down of claims that have run out, and tell of them."""
        keys = self._keys
        held, alive = self._gateway.read(
            read_all(keys.helds(pool_type), keys_only=True),
            read_all(keys.alives(pool_type), keys_only=True),
        ).answers
        living = {etcd_lease_id_in(kv) for kv in alive.items}
        gone = sorted({etcd_lease_id_in(kv) for kv in held.items} - living)
        ids = [ClaimId(pool_type, etcd_lease_id) for etcd_lease_id in gone]
        until = [self.reap_one(claim_id, self._look(claim_id)) for claim_id in ids]
        return Reaped(None in until, earliest(*until))

    def reap_one(
        self, claim_id: ClaimId, view: ClaimView, *, by_holder: bool = False
    ) -> float | None:
        """Free a claim that has run out, now or, unless its holder asks, when its time is over.

        Args:
            claim_id: Which.
            view: As it was just read; if it isn't so any more, nothing happens.
            by_holder: It is its holder that gives it back.

        Returns:
            When that is, on the elapsed clock; None when there is nothing left to free.
        """
        if view.held is None or view.is_alive:
            return None
        claim = parse_claim(view.held)
        if not by_holder:
            until = self._early.kept_until(claim_id, claim, view)
            if until is not None:
                return until
        names = frozenset(claim.names)
        by: ReleasedBy = "force" if claim.ended else "ttl"
        if self._ends.end(
            claim_id, claim, view.held, names, is_alive=False, by=by, reason=claim.ended
        ):
            self._lost(self._keys.claim_key_of(claim.claim_key), claim.names)
        return None

    def _free_as_made(
        self, claim_key: str, names: frozenset[str], by: ReleasedBy
    ) -> list[tuple[int, str]]:
        """Free what was claimed here at one time, as if nothing had happened to it since.

        Returns:
            What was freed, with the fences: all, or nothing. Then one has to look.
        """
        made = [self._made.pop(name, None) for name in names]
        if not made or made[0] is None or any(each != made[0] for each in made):
            return []
        pool_type, claim = made[0]
        if claim.claim_key != self._keys.with_state_id(claim_key):
            return []
        held = KeyValue(self._keys.held(pool_type, claim.etcd_lease_id), "", 0, claim.revision)
        claim_id = ClaimId(pool_type, claim.etcd_lease_id)
        is_freed = self._ends.end(claim_id, claim, held, names, is_alive=True, by=by)
        return [each for each in zip(claim.fences, claim.names) if is_freed and each[1] in names]

    def _look(self, claim_id: ClaimId) -> ClaimView:
        return parse_claim_view(self._gateway.read(*claim_reads(self._keys, claim_id)).answers)
