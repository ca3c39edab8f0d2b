"""Claims in etcd, from the grant to the release, the loss or the expiry.

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
from leasectl.engines.etcd.gateway.answers import NoSpace
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    KeyValue,
    absent,
    created_at,
    delete,
    delete_all,
    present,
    put,
    read,
    read_all,
    unchanged,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.records import (
    Claim,
    Free,
    encode_claim,
    encode_free,
    etcd_lease_id_in,
    name_in,
    number_in,
    parse_claim,
    type_in,
)
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


class _Seen(NamedTuple):
    """A claim as it stands in etcd at one revision.

    Args:
        held: The claim, if it is written down.
        is_alive: Whether it is still good.
        renewed: The date of its last renewal.
        gone: What has been written down since it has gone, if that was too early.
    """

    held: KeyValue | None
    is_alive: bool
    renewed: KeyValue | None
    gone: Found


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
        pool: KeyValue,
        grants: KeyValue | None,
        chosen: Sequence[Free],
    ) -> Claim | None:
        """Make a claim of a ticket.

        Args:
            ticket: It is taken away.
            etcd_lease_id: Of the etcd lease that it is attached to; so is the claim, if it expires.
            renewed: When that etcd lease was last kept alive, wall clock, in seconds.
            pool: As it was seen.
            grants: The number of its last grant, as it was seen.
            chosen: What to claim.

        Returns:
            The claim; None when the ticket, the pool or one of those chosen has changed.

        Raises:
            LeaseGone: The etcd lease has run out.
        """
        keys, claimant = self._keys, ticket.claimant
        pool_type = claimant.request.type
        number = 1 if grants is None else 1 + int(number_in(grants))
        claim = self._claim_of(ticket, etcd_lease_id, number, chosen)
        held = keys.held(pool_type, etcd_lease_id)
        attached = 0 if claimant.request.ttl_seconds is None else etcd_lease_id
        guards = [
            created_at(keys.ticket(pool_type, etcd_lease_id), ticket.number),
            unchanged(keys.pool(pool_type), pool.mod_revision),
            unchanged(keys.grants(pool_type), 0 if grants is None else grants.mod_revision),
            *(unchanged(free.key, free.mod_revision) for free in chosen),
        ]
        then = [
            delete(keys.ticket(pool_type, etcd_lease_id)),
            delete(keys.waiting(claimant.claim_key, etcd_lease_id)),
            put(keys.grants(pool_type), str(number)),
            put(held, encode_claim(claim)),
            put(keys.alive(pool_type, etcd_lease_id), "", etcd_lease_id=attached),
            put(keys.renewed(pool_type, etcd_lease_id), str(renewed)),
            put(keys.owned(claimant.claim_key, etcd_lease_id), pool_type),
        ]
        for index, free in enumerate(chosen):
            then.append(delete(free.key))
            then.append(put(keys.resource(pool_type, free.name), str(index)))
        outcome = self._gateway.commit(guards, then, [read(held)])
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
        for pool_type, etcd_lease_id in self._owned(claim_key):
            wanted = None if names is None else frozenset(names)
            freed += self.give_back(pool_type, etcd_lease_id, wanted)
        return tuple(name for _, name in sorted(freed))

    def renew(self, claim_key: str) -> tuple[str, ...]:
        """As `Engine.renew`."""
        held: list[tuple[int, str]] = []
        for pool_type, etcd_lease_id in self._owned(claim_key):
            claim = self.renew_claim(pool_type, etcd_lease_id)
            if claim is not None:
                held += zip(claim.fences, claim.names)
        return tuple(name for _, name in sorted(held))

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
        until = [self._reap_one(pool_type, etcd_lease_id) for etcd_lease_id in gone]
        return Reaped(None in until, earliest(*until))

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
        is_freed = self._end(pool_type, claim, held, names, is_alive=True)
        return [each for each in zip(claim.fences, claim.names) if is_freed and each[1] in names]

    def _owned(self, claim_key: str) -> list[tuple[str, int]]:
        (found,) = self._gateway.read(read_all(self._keys.all_owned(claim_key))).answers
        return [(type_in(kv), etcd_lease_id_in(kv)) for kv in found.items]

    def _read_claim(self, pool_type: str, etcd_lease_id: int) -> _Seen:
        keys = self._keys
        held, alive, renewed, gone = self._gateway.read(
            read(keys.held(pool_type, etcd_lease_id)),
            read(keys.alive(pool_type, etcd_lease_id)),
            read(keys.renewed(pool_type, etcd_lease_id)),
            read_all(keys.gone(pool_type, etcd_lease_id)),
        ).answers
        return _Seen(held.first, alive.first is not None, renewed.first, gone)

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
        )

    def give_back(
        self, pool_type: str, etcd_lease_id: int, names: frozenset[str] | None = None
    ) -> list[tuple[int, str]]:
        """Free a claim, all of it or some; returns what was its own, with the fences."""
        while True:
            held, is_alive, *_ = self._read_claim(pool_type, etcd_lease_id)
            if held is None:
                return []
            if not is_alive:
                self._reap_one(pool_type, etcd_lease_id, by_owner=True)
                return []
            claim = parse_claim(held)
            gone = frozenset(claim.names) if names is None else names & frozenset(claim.names)
            freed = [(f, name) for f, name in zip(claim.fences, claim.names) if name in gone]
            if not freed or self._end(pool_type, claim, held, gone, is_alive=True):
                return freed

    def _reap_one(
        self, pool_type: str, etcd_lease_id: int, *, by_owner: bool = False
    ) -> float | None:
        """Free a claim that has run out, now or, unless its owner asks, when its time is over.

        Returns:
            When that is, on the elapsed clock; None when there is nothing left to free.
        """
        held, is_alive, renewed, gone = self._read_claim(pool_type, etcd_lease_id)
        if held is None or is_alive:
            return None
        claim = parse_claim(held)
        if not by_owner:
            until = self._early.kept_until(pool_type, claim, renewed, gone)
            if until is not None:
                return until
        if self._end(pool_type, claim, held, frozenset(claim.names), is_alive=False):
            self._lost(self._keys.claim_key_of(claim.claim_key), claim.names)
        return None

    def _end(
        self, pool_type: str, claim: Claim, held: KeyValue, names: frozenset[str], *, is_alive: bool
    ) -> bool:
        """Put a claim's resources back among the free ones, if it is still as it was read.

        Whether an earlier try did that whose answer was lost, or somebody else, is told by a key
        that goes with the etcd lease. For what has none, it is told by what is left of the claim.
        """
        keys, rest = self._keys, claim.without(names)
        alive = keys.alive(pool_type, claim.etcd_lease_id)
        marks = is_alive and claim.lease_duration_seconds is not None
        mark = keys.ended(pool_type, claim.etcd_lease_id, secrets.token_hex(8))
        freed = [
            put(keys.free(pool_type, each, name), encode_free(claim.holder_identity, changes))
            for each, name, changes in zip(claim.fences, claim.names, claim.transitions)
            if name in names
        ]
        outcome = self._gateway.commit(
            [unchanged(held.key, held.mod_revision), present(alive) if is_alive else absent(alive)],
            [
                *freed,
                *self.rewrite(pool_type, held.key, rest),
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

    def rewrite(self, pool_type: str, key: str, rest: Claim) -> list[Json]:
        """What makes of a claim what is left of it."""
        if rest.names:
            return [put(key, encode_claim(rest))]
        return [
            delete(key),
            delete(self._keys.alive(pool_type, rest.etcd_lease_id)),
            delete(self._keys.renewed(pool_type, rest.etcd_lease_id)),
            delete_all(self._keys.gone(pool_type, rest.etcd_lease_id)),
            delete(self._keys.owned(self._keys.claim_key_of(rest.claim_key), rest.etcd_lease_id)),
        ]

    def renew_claim(self, pool_type: str, etcd_lease_id: int) -> Claim | None:
        """Give a claim its full time again and date it; None when it has run out."""
        held, is_alive, *_ = self._read_claim(pool_type, etcd_lease_id)
        if held is None:
            return None
        claim = parse_claim(held)
        expires = claim.lease_duration_seconds is not None
        now = self._clock.wall()
        is_kept = is_alive and (not expires or self._gateway.keep_alive(etcd_lease_id))
        if is_kept and self._date(pool_type, etcd_lease_id, now):
            return claim
        with contextlib.suppress(NoSpace):  # that it has run out is said all the same
            self._reap_one(pool_type, etcd_lease_id)
        return None

    def _date(self, pool_type: str, etcd_lease_id: int, renewed: float) -> bool:
        """Write down when a claim was renewed; returns whether it is still there.

        Without space that isn't written, and nothing else is: nobody can be granted anything.
        """
        alive = self._keys.alive(pool_type, etcd_lease_id)
        date = put(self._keys.renewed(pool_type, etcd_lease_id), str(renewed))
        try:
            return self._gateway.commit([present(alive)], [date]).succeeded
        except NoSpace:
            return self._read_claim(pool_type, etcd_lease_id).is_alive


def pool_types(gateway: Gateway, keys: Keys) -> list[str]:
    """The types of all pools there are, sorted."""
    (found,) = gateway.read(read_all(keys.pools())).answers
    return [name_in(kv) for kv in found.items if not kv.value]
