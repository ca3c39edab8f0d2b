"""Read a pool as it is shown, at one revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.etcd.gateway.answers import Compacted, NoSpace
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    MOST_OPERATIONS,
    Found,
    Json,
    KeyValue,
    as_of,
    read,
    read_all,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in, noted_in, number_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import has_ended, parse_belonging, parse_member
from leasectl.engines.etcd.pools.listing import check_there, pool_types
from leasectl.engines.etcd.queues.pace import EtcdPaces, Owed, pace_reads, parse_pace
from leasectl.engines.etcd.queues.rank import in_order, priorities
from leasectl.engines.etcd.records import Claim, parse_claim, parse_ticket
from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.engines.membership import Member, Pools
from leasectl.engines.possible import Want
from leasectl.system.clock import Clock


class SaidOfNames(NamedTuple):
    """What is said of names, whatever the pool.

    Args:
        facts: Their keys below ``member/``, by name.
        belonging: Where names belong of which nobody says more.
    """

    facts: Mapping[str, KeyValue]
    belonging: Pools


class PoolFacts(NamedTuple):
    """What is so of the resources of one pool.

    Args:
        members: All of them, by name, but for who holds them.
        lives: The keys of those that are there for a time, by name.
        graces: The keys of those that are held back, likewise.
        notes: What is noted at claims, by the keys of the notes.
        coming: Those that are to be had here later, by themselves.
    """

    members: Mapping[str, Member]
    lives: Mapping[str, KeyValue]
    graces: Mapping[str, KeyValue]
    notes: Mapping[str, str]
    coming: frozenset[str]

    def resource(self, held: Resource, left: Mapping[int, float]) -> Resource:
        """A resource with what is so of it.

        Args:
            held: What else there is to be shown of it.
            left: How long that lasts which is for a time, in seconds, by the ids of etcd leases.
        """
        member, life = self.said_of(held.name), self.lives.get(held.name)
        if member is None:
            return held
        grace = self.graces.get(held.name) if held.name in self.coming else None
        holder = None if held.lease is None else held.lease.holder_identity
        return held._replace(
            member=member._replace(holder=holder),
            held_back_seconds=None if grace is None else left.get(grace.etcd_lease_id),
            leaves_in_seconds=None if life is None else left.get(life.etcd_lease_id),
        )

    def etcd_lease_ids(self) -> list[int]:
        """What is there for a time is attached to."""
        kvs = (*self.lives.values(), *self.graces.values())
        return [kv.etcd_lease_id for kv in kvs if kv.etcd_lease_id]

    def said_of(self, name: str) -> Member | None:
        """What is known of a name; None where that is nothing but that it is in its pool."""
        member = self.members[name]
        return None if member == Member(name, member.pool) else member

    def over(self) -> Iterator[str]:
        """The names of which something is over by now, and nobody has written that yet."""
        for name, member in self.members.items():
            is_over = has_ended(member.lifetime, self.lives.get(name))
            if is_over or (name in self.coming and name not in self.graces):
                yield name


def unmet_among(entries: Iterable[QueueEntry], facts: PoolFacts) -> frozenset[int]:
    """The numbers of the tickets that what is in the pool can't meet, as things are."""
    wants = {each.ticket: (Want(each.name, each.where), each.count) for each in entries}
    members = facts.members.values()
    usable = {want: want.count_usable(members) for want in {want for want, _ in wants.values()}}
    return frozenset(number for number, (want, count) in wants.items() if usable[want] < count)


def name_reads(keys: Keys) -> tuple[Json, ...]:
    """What a request has to read of all names; `parse_names` takes the answers."""
    return read_all(keys.members()), read(keys.belonging())


def parse_names(answers: Sequence[Found], types: Sequence[str]) -> SaidOfNames:
    """What came of `name_reads`.

    Args:
        answers: Of that.
        types: Of the pools that there are.
    """
    facts, belonging = answers
    return SaidOfNames(
        {name_in(kv): kv for kv in facts.items},
        parse_belonging(belonging.first, frozenset(types)),
    )


def fact_reads(keys: Keys, pool_type: str) -> tuple[Json, ...]:
    """What a request has to read of one pool's resources; `parse_facts` takes the answers."""
    return (
        read_all(keys.below("life", pool_type)),
        read_all(keys.below("grace", pool_type)),
        read_all(keys.comings(pool_type)),
        read_all(keys.notes(pool_type)),
    )


def parse_facts(
    pool_type: str, names: Sequence[str], answers: Sequence[Found], said: SaidOfNames
) -> PoolFacts:
    """What came of `fact_reads`.

    Args:
        pool_type: Of the pool.
        names: Of its resources.
        answers: Of those.
        said: What is said of names.
    """
    lives, graces, comings, notes = answers
    return PoolFacts(
        {name: parse_member(said.facts.get(name), name, pool_type) for name in names},
        {name_in(kv): kv for kv in lives.items},
        {name_in(kv): kv for kv in graces.items},
        {kv.key: noted_in(kv) for kv in notes.items},
        frozenset(name_in(kv) for kv in comings.items if not kv.value),
    )


_ASKED_AT_ONCE = 8


class ShownPools:
    """The pools below one prefix of a cluster, to be looked at.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._clock = clock
        self._paces = EtcdPaces(gateway, keys)

    def record(self, pool_type: str) -> KeyValue:
        """The pool's own key.

        Raises:
            NotFound: There is no such pool, or not yet.
        """
        (found,) = self._gateway.read(read(self._keys.pool(pool_type))).answers
        return check_there(self._gateway, self._keys, pool_type, found.first)

    def pools(
        self,
        pool_type: str | None = None,
        *,
        expiries: bool = False,
        settle: Callable[[Sequence[str]], object] | None = None,
    ) -> tuple[Pool, ...]:
        """Implements `PoolAdmin.pools`.

        Args:
            pool_type: Which; None for all.
            expiries: Also tell when leases run out, and what else is there for a time.
            settle: Has that be written which has become so of some names by itself.
        """
        types = pool_types(self._gateway, self._keys)
        if pool_type is not None and pool_type not in types:
            raise refusals.no_pool(pool_type, types)
        chosen = types if pool_type is None else [pool_type]
        seen = self._read(chosen, types)
        over = [name for each in seen for name in each.facts.over()]
        if over and settle is not None:
            with suppress(NoSpace):  # it is shown all the same
                settle(over)
                seen = self._read(chosen, types)
        return tuple(self._show(each, expiries=expiries) for each in seen)

    def _next_grant_in(self, owed: Owed) -> float:
        """How many seconds there are at most until the next grant; who waits may know better."""
        longest = owed.paid_in(0.0)
        if not longest or not owed.counted_by:
            return longest
        return owed.paid_in(self._paces.counted(owed))

    def _read(self, chosen: Sequence[str], types: Sequence[str]) -> list[_Seen]:
        """See some of all pools, as they are at one revision.

        Else one would see in two of them, or in none, what moves from one to another.
        """
        while True:
            with suppress(Compacted):  # it has taken too long
                return self._read_at_once(chosen, types) if chosen else []

    def _read_at_once(self, chosen: Sequence[str], types: Sequence[str]) -> list[_Seen]:
        names = name_reads(self._keys)
        reads = [each for pool_type in chosen for each in self._reads(pool_type)]
        size = len(reads) // len(chosen)
        rest = MOST_OPERATIONS - len(names)
        outcome = self._gateway.read(*names, *reads[:rest])
        found = list(outcome.answers)
        for start in range(rest, len(reads), MOST_OPERATIONS):
            part = reads[start : start + MOST_OPERATIONS]
            found += self._gateway.read(*(as_of(each, outcome.revision) for each in part)).answers
        said, found = parse_names(found[: len(names)], types), found[len(names) :]
        starts = range(0, len(found), size)
        return [
            _see(pool_type, found[at : at + size], said) for pool_type, at in zip(chosen, starts)
        ]

    def _reads(self, pool_type: str) -> tuple[Json, ...]:
        keys = self._keys
        return (
            *fact_reads(keys, pool_type),
            *pace_reads(keys, pool_type),
            read_all(keys.resources(pool_type), keys_only=True),
            read_all(keys.helds(pool_type)),
            read_all(keys.alives(pool_type), keys_only=True),
            read_all(keys.renewals(pool_type)),
            read_all(keys.tickets(pool_type)),
            read_all(keys.ranks(pool_type), keys_only=True),
        )

    def _show(self, seen: _Seen, *, expiries: bool) -> Pool:
        alive = {etcd_lease_id_in(kv) for kv in seen.alives.items}
        renewed = {etcd_lease_id_in(kv): number_in(kv) for kv in seen.renewals.items}
        now = self._clock.wall()
        claims = [
            claim
            for claim in map(parse_claim, seen.helds.items)
            if claim.etcd_lease_id in alive
            or claim.seconds_left(renewed.get(claim.etcd_lease_id, 0.0), now)
        ]
        left = self._time_left(claims, renewed, seen.facts) if expiries else {}
        held = {
            each.name: each
            for claim in claims
            for each in self._held(
                claim,
                renewed.get(claim.etcd_lease_id, claim.acquire_time),
                left.get(claim.etcd_lease_id),
                seen,
            )
        }
        belonging = seen.said.belonging
        return Pool(
            seen.type,
            tuple(
                seen.facts.resource(held.get(name, Resource(name)), left)
                for name in seen.facts.members
            ),
            self._queue(seen),
            seen.owed.settings,
            self._next_grant_in(seen.owed),
            belonging.grace_seconds if belonging.default == seen.type else None,
        )

    def _held(
        self, claim: Claim, renewed: float, left: float | None, seen: _Seen
    ) -> Iterator[Resource]:
        claim_key = self._keys.claim_key_of(claim.claim_key)
        note_of = partial(self._keys.note, seen.type, claim.etcd_lease_id)
        for lease in claim.leases(renewed):
            yield Resource(
                name=lease.name,
                lease=lease,
                claim_key=claim_key,
                expires_in_seconds=left,
                holder_pid=claim.holder_pid,
                release_after_seconds=claim.release_after_seconds,
                ended=claim.ended or None,
                note=seen.facts.notes.get(note_of(lease.name)),
            )

    def _time_left(
        self, claims: Sequence[Claim], renewed: Mapping[int, float], facts: PoolFacts
    ) -> dict[int, float]:
        """How long that lasts which is for a time, in seconds, by the ids of the etcd leases."""
        # Only here, where people look; an etcd lease can only be asked for by itself.
        from concurrent.futures import ThreadPoolExecutor

        expire = [each for each in claims if each.lease_duration_seconds is not None]
        now = self._clock.wall()
        ids = [claim.etcd_lease_id for claim in expire if not claim.ended] + facts.etcd_lease_ids()
        kept = {
            claim.etcd_lease_id: claim.seconds_left(renewed.get(claim.etcd_lease_id, 0.0), now)
            for claim in expire
            if claim.ended
        }
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
            return {**kept, **dict(zip(ids, threads.map(self._gateway.time_left, ids)))}

    def _queue(self, seen: _Seen) -> tuple[QueueEntry, ...]:
        counted = priorities(seen.ranks.items)
        entries = [
            parse_ticket(kv)._replace(effective_priority=counted.get(etcd_lease_id_in(kv), 0))
            for kv in in_order(seen.tickets.items, counted)
        ]
        unmet = unmet_among(entries, seen.facts)
        return tuple(
            entry._replace(
                claim_key=self._keys.claim_key_of(entry.claim_key),
                suspended=entry.ticket in unmet,
            )
            for entry in entries
        )


class _Seen(NamedTuple):
    """A pool as it was read."""

    type: str
    said: SaidOfNames
    facts: PoolFacts
    owed: Owed
    helds: Found
    alives: Found
    renewals: Found
    tickets: Found
    ranks: Found


def _see(pool_type: str, answers: Sequence[Found], said: SaidOfNames) -> _Seen:
    """What came of reading a pool."""
    facts, paced, (resources, *rest) = answers[:4], answers[4:7], answers[7:]
    names = list(map(name_in, resources.items))
    return _Seen(
        pool_type, said, parse_facts(pool_type, names, facts, said), parse_pace(paced), *rest
    )
