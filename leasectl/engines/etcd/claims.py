"""Claims in etcd: made, given back, and freed when they have run out.

A claim that has run out is still written down under ``held/`` while its ``alive/`` has gone with
the etcd lease. Whoever sees that puts its resources back among the free ones, and tells of it.

But not before the time that its last renewal gave it, as `EarlyEnds` has it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.early_ends import EarlyEnds
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Json,
    KeyValue,
    absent,
    created_at,
    delete,
    delete_all,
    grouped,
    present,
    put,
    read,
    read_all,
    unchanged,
)
from leasectl.engines.etcd.key_values import claim_id_in, etcd_lease_id_in, number_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.look import ClaimView, QueueView, claim_reads, parse_claim_view
from leasectl.engines.etcd.records import Claim, Free, encode_claim, encode_free, parse_claim
from leasectl.errors import BackendUnreachable
from leasectl.model import Ticket
from leasectl.system.clock import Clock, earliest


class Reaped(NamedTuple):
    """What came of freeing what has run out.

    Args:
        any: Something was freed, or had just been.
        next_at: When there is something to free, on the elapsed clock, that has run out too early.
    """

    any: bool
    next_at: float | None


class EtcdClaims:
    """The claims below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        lost: Told, by whoever notices, of claims that expired or were taken by force.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, *, lost: LostListener, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._lost = lost
        self._clock = clock
        self._early = EarlyEnds(gateway, keys, clock=clock)
        self._made: dict[str, tuple[str, Claim]] = {}  # by name: its pool, and its last claim here

    def make(
        self,
        ticket: Ticket,
        etcd_lease_id: int,
        renewed: float,
        view: QueueView,
        chosen: Sequence[Free],
    ) -> Claim | None:
        """Make a claim of a ticket.

        Args:
            ticket: It is taken away.
            etcd_lease_id: Of the etcd lease that it is attached to; so is the claim, if it expires.
            renewed: When that etcd lease was last kept alive, wall clock, in seconds.
            view: What was seen, of a pool that is there.
            chosen: What to claim.

        Returns:
            The claim; None when the ticket, the pool or one of those chosen has changed.

        Raises:
            EtcdLeaseGone: The etcd lease has run out.
        """
        assert view.pool is not None
        keys, claimant, grants = self._keys, ticket.claimant, view.grants
        pool_type = claimant.request.type
        number = 1 if grants is None else 1 + int(number_in(grants))
        claim = self._claim_of(ticket, etcd_lease_id, number, chosen)
        claim_id = ClaimId(pool_type, etcd_lease_id)
        held = keys.held(*claim_id)
        attached = 0 if claimant.request.ttl_seconds is None else etcd_lease_id
        guards = [
            created_at(keys.ticket(*claim_id), ticket.number),
            unchanged(keys.pool(pool_type), view.pool.mod_revision),
            unchanged(keys.grants(pool_type), 0 if grants is None else grants.mod_revision),
            *(unchanged(free.key, free.mod_revision) for free in chosen),
        ]
        then = [
            delete(keys.ticket(*claim_id)),
            delete(keys.waiting(claimant.claim_key, etcd_lease_id)),
            put(keys.grants(pool_type), str(number)),
            put(held, encode_claim(claim)),
            put(keys.alive(*claim_id), "", etcd_lease_id=attached),
            put(keys.renewed(*claim_id), str(renewed)),
            put(keys.owned(claimant.claim_key, etcd_lease_id), pool_type),
        ]
        for index, free in enumerate(chosen):
            then.append(delete(free.key))
            then.append(put(keys.resource(pool_type, free.name), str(index)))
        outcome = self._gateway.commit(guards, grouped(then), [read(held)])
        if outcome.succeeded:
            made = claim._replace(revision=outcome.revision)
        else:
            (found,) = outcome.answers
            if found.first is None:
                return None
            made = parse_claim(found.first)  # by an earlier try, whose answer was lost
        self._made.update((name, (pool_type, made)) for name in made.names)
        return made

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """As `Engine.free`."""
        freed = self._free_as_made(claim_key, frozenset(names or ()))
        if freed:
            return tuple(name for _, name in sorted(freed))
        for claim_id in self.index(claim_key):
            wanted = None if names is None else frozenset(names)
            freed += self.give_back(claim_id, wanted)
        return tuple(name for _, name in sorted(freed))

    def give_back(
        self, claim_id: ClaimId, names: frozenset[str] | None = None
    ) -> list[tuple[int, str]]:
        """Free a claim, all of it or some; returns what was its own, with the fences."""
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
            if not freed or self._end(claim_id, claim, view.held, gone, is_alive=True):
                return freed

    def index(self, claim_key: str) -> tuple[ClaimId, ...]:
        """The claims that are found by a claim key, in the order of their ids."""
        (found,) = self._gateway.read(read_all(self._keys.all_owned(claim_key))).answers
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
        if self._end(claim_id, claim, view.held, frozenset(claim.names), is_alive=False):
            self._lost(self._keys.claim_key_of(claim.claim_key), claim.names)
        return None

    def rewrite(self, pool_type: str, rest: Claim) -> list[Json]:
        """What makes of a claim what is left of it, in a transaction."""
        keys, claim_id = self._keys, ClaimId(pool_type, rest.etcd_lease_id)
        if rest.names:
            return [put(keys.held(*claim_id), encode_claim(rest))]
        return [
            delete(keys.held(*claim_id)),
            delete(keys.alive(*claim_id)),
            delete(keys.renewed(*claim_id)),
            delete_all(keys.gone(*claim_id)),
            delete(keys.owned(keys.claim_key_of(rest.claim_key), rest.etcd_lease_id)),
        ]

    def revoke(self, etcd_lease_id: int) -> None:
        """End an etcd lease that nothing is attached to; if that fails it ends by itself."""
        with contextlib.suppress(BackendUnreachable):
            self._gateway.revoke(etcd_lease_id)

    def _free_as_made(self, claim_key: str, names: frozenset[str]) -> list[tuple[int, str]]:
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
        is_freed = self._end(claim_id, claim, held, names, is_alive=True)
        return [each for each in zip(claim.fences, claim.names) if is_freed and each[1] in names]

    def _look(self, claim_id: ClaimId) -> ClaimView:
        return parse_claim_view(self._gateway.read(*claim_reads(self._keys, claim_id)).answers)

    def _claim_of(
        self, ticket: Ticket, etcd_lease_id: int, grant: int, chosen: Sequence[Free]
    ) -> Claim:
        claimant = ticket.claimant
        identity = claimant.holder_identity
        return Claim(
            etcd_lease_id=etcd_lease_id,
            claim_key=self._keys.with_state_id(claimant.claim_key),
            holder_identity=identity,
            names=tuple(free.name for free in chosen),
            indices=tuple(range(len(chosen))),
            transitions=tuple(
                free.transitions + (free.last_holder not in (None, identity)) for free in chosen
            ),
            revision=0,
            ticket=ticket.number,
            grant=grant,
            acquire_time=self._clock.wall(),
            lease_duration_seconds=claimant.request.ttl_seconds,
            labels=claimant.request.labels,
            holder_pid=claimant.holder_pid,
            release_after_seconds=claimant.request.release_after_seconds,
        )

    def _end(
        self,
        claim_id: ClaimId,
        claim: Claim,
        held: KeyValue,
        names: frozenset[str],
        *,
        is_alive: bool,
    ) -> bool:
        """Put a claim's resources back among the free ones, if it is still as it was read.

        Whether an earlier try did that whose answer was lost, or somebody else, is told by a key
        that goes with the etcd lease. For what has none, it is told by what is left of the claim.
        """
        keys, rest = self._keys, claim.without(names)
        alive = keys.alive(*claim_id)
        marks = is_alive and claim.lease_duration_seconds is not None
        mark = keys.ended(*claim_id, secrets.token_hex(8))
        freed = [
            put(
                keys.free(claim_id.pool_type, each, name),
                encode_free(claim.holder_identity, changes),
            )
            for each, name, changes in zip(claim.fences, claim.names, claim.transitions)
            if name in names
        ]
        outcome = self._gateway.commit(
            [unchanged(held.key, held.mod_revision), present(alive) if is_alive else absent(alive)],
            [
                *freed,
                *self.rewrite(claim_id.pool_type, rest),
                *([put(mark, "", etcd_lease_id=claim.etcd_lease_id)] if marks else []),
            ],
            [read(held.key), read(mark)],
        )
        done = outcome.succeeded
        if outcome.repeated and not done:
            left, marked = (found.first for found in outcome.answers)
            gone = left is None or names.isdisjoint(parse_claim(left).names)
            done = marked is not None if marks else gone
        # Without a ttl nothing is attached to the etcd lease any more; it ends soon by itself.
        if done and not rest.names and claim.lease_duration_seconds is not None:
            self.revoke(claim.etcd_lease_id)
        return done
