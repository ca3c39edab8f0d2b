"""What the pools in etcd look like when they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Callable

from leasectl.engines import refusals
from leasectl.engines.etcd.competing import rival
from leasectl.engines.etcd.gateway.answers import Compacted
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    MOST_OPERATIONS,
    Found,
    Json,
    KeyValue,
    as_of,
    count,
    read,
    read_all,
    read_created_before,
    read_first_created,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in, number_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pace import EtcdPaces, Owed, read_owed
from leasectl.engines.etcd.rank import in_order, priorities
from leasectl.engines.etcd.records import Claim, parse_claim, parse_settings, parse_ticket
from leasectl.engines.facts import NO_SETTINGS, Pool, QueueEntry, Resource, Standing
from leasectl.system.clock import Clock

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
        return self._check_there(pool_type, found)

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        """As `PoolAdmin.pools`."""
        types = pool_types(self._gateway, self._keys)
        if pool_type is not None and pool_type not in types:
            raise refusals.no_pool(pool_type, types)
        chosen = types if pool_type is None else [pool_type]
        while True:
            with suppress(Compacted):  # it has taken too long
                found = self._read(chosen)
                break
        return tuple(self._show(*each, expiries=expiries) for each in zip(chosen, found))

    def standing(
        self, pool_type: str, ticket: int, *, name: str | None, left: Callable[[Owed], float]
    ) -> Standing:
        """As `Waiter.standing`, of any ticket.

        Args:
            pool_type: Of the queue.
            ticket: Its number.
            name: The one resource that it waits for.
            left: How many seconds there are until the next grant, as far as its waiter can tell.
        """
        keys = self._keys
        pool, resources, frees, oldest, before, tickets, ranks, *paced = self._gateway.read(
            read(keys.pool(pool_type)),
            count(keys.resources(pool_type)),
            count(keys.frees(pool_type)),
            read_first_created(keys.helds(pool_type)),
            # Etcd can't count by that.
            read_created_before(keys.tickets(pool_type), ticket, keys_only=name is None),
            count(keys.tickets(pool_type)),
            count(keys.ranks(pool_type)),
            *self._pace_reads(pool_type),
        ).answers
        self._check_there(pool_type, pool)
        better = self._better(pool_type, ticket) if ranks.count else before.items
        better = better if name is None else _competing(better, name)
        owed = _owed(paced)
        seconds = left(owed)
        standing = Standing(
            position=1 + len(better),
            others=max(0, tickets.count - 1),
            held=resources.count - frees.count,
            capacity=resources.count,
            next_grant_at=self._clock.elapsed() + seconds if seconds else None,
            pace_seconds=owed.settings.pace_seconds,
        )
        if oldest.first is None:
            return standing
        claim = parse_claim(oldest.first)
        return standing._replace(
            longest_holder=claim.holder_identity, longest_since=claim.acquire_time
        )

    def _better(self, pool_type: str, ticket: int) -> list[KeyValue]:
        """The tickets that are served before one, by its number."""
        tickets, ranks = self._gateway.read(
            read_all(self._keys.tickets(pool_type)),
            read_all(self._keys.ranks(pool_type), keys_only=True),
        ).answers
        order = in_order(tickets.items, priorities(ranks.items))
        own = next((n for n, kv in enumerate(order) if kv.create_revision == ticket), len(order))
        return order[:own]

    def _pace_reads(self, pool_type: str) -> tuple[Json, ...]:
        keys = self._keys
        return (
            read(keys.settings(pool_type)),
            read(keys.pace(pool_type)),
            read(keys.grants(pool_type)),
        )

    def _next_grant_in(self, owed: Owed) -> float:
        """How many seconds there are at most until the next grant; who waits may know better."""
        longest = owed.paid_in(0.0)
        if not longest or not owed.counted_by:
            return longest
        return owed.paid_in(self._paces.counted(owed))

    def _check_there(self, pool_type: str, found: Found) -> KeyValue:
        if found.first is None or found.first.value:
            raise refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))
        return found.first

    def _read(self, types: Sequence[str]) -> list[Sequence[Found]]:
        """What `_show` is to be told of pools, as all of them are at one revision.

        Else one would see in two of them, or in none, what moves from one to another.
        """
        reads = [self._reads(each) for each in types]
        at_once = max(1, MOST_OPERATIONS // len(reads[0])) if reads else 1
        found: list[Sequence[Found]] = []
        revision = 0
        for start in range(0, len(reads), at_once):
            part = [each for of_pool in reads[start : start + at_once] for each in of_pool]
            outcome = self._gateway.read(
                *(as_of(each, revision) if revision else each for each in part)
            )
            revision = revision or outcome.revision
            size = len(reads[0])
            answers = outcome.answers
            found += [answers[at : at + size] for at in range(0, len(answers), size)]
        return found

    def _reads(self, pool_type: str) -> tuple[Json, ...]:
        keys = self._keys
        return (
            read_all(keys.resources(pool_type), keys_only=True),
            read_all(keys.helds(pool_type)),
            read_all(keys.alives(pool_type), keys_only=True),
            read_all(keys.renewals(pool_type)),
            read_all(keys.tickets(pool_type)),
            read_all(keys.ranks(pool_type), keys_only=True),
            *self._pace_reads(pool_type),
        )

    def _show(self, pool_type: str, answers: Sequence[Found], *, expiries: bool) -> Pool:
        resources, helds, alives, renewals, tickets, ranks, *paced = answers
        alive = {etcd_lease_id_in(kv) for kv in alives.items}
        renewed = {etcd_lease_id_in(kv): number_in(kv) for kv in renewals.items}
        now = self._clock.wall()
        claims = [
            claim
            for claim in map(parse_claim, helds.items)
            if claim.etcd_lease_id in alive
            or claim.seconds_left(renewed.get(claim.etcd_lease_id, 0.0), now)
        ]
        left = self._time_left(claims, renewed) if expiries else {}
        held = {
            each.name: each
            for claim in claims
            for each in self._held(
                claim,
                renewed.get(claim.etcd_lease_id, claim.acquire_time),
                left.get(claim.etcd_lease_id),
            )
        }
        names, owed = map(name_in, resources.items), _owed(paced)
        return Pool(
            pool_type,
            tuple(held.get(name, Resource(name)) for name in names),
            self._queue(tickets, ranks),
            owed.settings,
            self._next_grant_in(owed),
        )

    def _held(self, claim: Claim, renewed: float, left: float | None) -> Iterator[Resource]:
        claim_key = self._keys.claim_key_of(claim.claim_key)
        for lease in claim.leases(renewed):
            yield Resource(
                name=lease.name,
                lease=lease,
                claim_key=claim_key,
                expires_in_seconds=left,
                holder_pid=claim.holder_pid,
                release_after_seconds=claim.release_after_seconds,
                ended=claim.ended or None,
            )

    def _time_left(self, claims: Sequence[Claim], renewed: Mapping[int, float]) -> dict[int, float]:
        """How long the claims last that expire, in seconds, by the ids of their etcd leases."""
        # Only here, where people look; an etcd lease can only be asked for by itself.
        from concurrent.futures import ThreadPoolExecutor

        expire = [each for each in claims if each.lease_duration_seconds is not None]
        now = self._clock.wall()
        ids = [claim.etcd_lease_id for claim in expire if not claim.ended]
        kept = {
            claim.etcd_lease_id: claim.seconds_left(renewed.get(claim.etcd_lease_id, 0.0), now)
            for claim in expire
            if claim.ended
        }
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
            return {**kept, **dict(zip(ids, threads.map(self._gateway.time_left, ids)))}

    def _queue(self, tickets: Found, ranks: Found) -> tuple[QueueEntry, ...]:
        counted = priorities(ranks.items)
        return tuple(
            entry._replace(
                claim_key=self._keys.claim_key_of(entry.claim_key),
                effective_priority=counted.get(etcd_lease_id_in(kv), 0),
            )
            for kv in in_order(tickets.items, counted)
            for entry in [parse_ticket(kv)]
        )


def pool_types(gateway: Gateway, keys: Keys) -> list[str]:
    """The types of all pools there are, sorted."""
    (found,) = gateway.read(read_all(keys.pools())).answers
    return [name_in(kv) for kv in found.items if not kv.value]


def _owed(found: Sequence[Found]) -> Owed:
    """What came of reading what a pool's pace is, and what is owed it."""
    settings, pace, grants = (each.first for each in found)
    return read_owed(NO_SETTINGS if settings is None else parse_settings(settings), pace, grants)


def _competing(tickets: Sequence[KeyValue], name: str) -> list[KeyValue]:
    """Those of some tickets that could use a resource."""
    return [kv for kv in tickets if rival(kv).want.could_use(name, ())]
