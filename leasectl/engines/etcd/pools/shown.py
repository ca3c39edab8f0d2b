"""What the pools in etcd look like when they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

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
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in, number_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pools.listing import check_there, pool_types
from leasectl.engines.etcd.pools.shown_facts import (
    PoolFacts,
    SaidOfNames,
    fact_reads,
    name_reads,
    parse_facts,
    parse_names,
    unmet_among,
)
from leasectl.engines.etcd.queues.pace import EtcdPaces, Owed, pace_reads, parse_pace
from leasectl.engines.etcd.queues.rank import in_order, priorities
from leasectl.engines.etcd.records import Claim, parse_claim, parse_ticket
from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.system.clock import Clock
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

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
        """As `PoolAdmin.pools`.

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
