"""Resources and whole pools in etcd that are taken away, with what their holders have of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd import event_facts
from leasectl.engines.etcd.claim_ends import revoke_unused, rewrite_claim
from leasectl.engines.etcd.claims import EtcdClaims
from leasectl.engines.etcd.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    MOST_OPERATIONS,
    Json,
    KeyValue,
    absent,
    created_at,
    delete,
    delete_all,
    none_below,
    put,
    read,
    read_all,
    unchanged,
)
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.records import (
    Claim,
    last_fence,
    parse_claim,
)
from leasectl.engines.etcd.shown import ShownPools
from leasectl.engines.etcd.withdrawals import EtcdWithdrawals
from leasectl.engines.event_words import (
    POOL_DELETED,
    resources_removed,
)
from leasectl.state.event import Event, EventKind
from leasectl.system.clock import Clock

# Each takes ten operations at most, with its claim and the events of that.
_REMOVED_AT_ONCE = 12


class PoolRemovals:
    """Takes away what is below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for each step.
        claims: The claims in it.
        lost: Told of claims that are taken by force.
        clock: Where times come from.
        caller: Who does it, for the record of events.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        events: EtcdEvents,
        claims: EtcdClaims,
        *,
        lost: LostListener,
        clock: Clock,
        caller: str,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._claims = claims
        self._lost = lost
        self._clock = clock
        self._caller = caller
        self._withdrawals = EtcdWithdrawals(gateway, keys, events, clock=clock)
        self._shown = ShownPools(gateway, keys, clock=clock)

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        """As `PoolAdmin.remove_resources`."""
        names = list(dict.fromkeys(names))
        self._claims.reap(pool_type)
        self._look_at(pool_type, names, force=force)  # so that all are refused, or none
        for batch in batches(names, _REMOVED_AT_ONCE):
            while not self._remove(self._look_at(pool_type, batch, force=force)):
                pass

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        """As `PoolAdmin.delete_pool`."""
        keys, pool = self._keys, self._shown.record(pool_type)
        while True:
            self._claims.reap(pool_type)
            self._withdrawals.reap(pool_type)
            (shown,) = self._shown.pools(pool_type)
            if not force and (shown.held or shown.queue):
                raise refusals.pool_in_use(pool_type, shown.held, len(shown.queue))
            guards = [none_below(keys.tickets(pool_type)), none_below(keys.helds(pool_type))]
            events = [self._event("pool deleted", pool_type, [r.name for r in shown.resources])]
            if force:
                guards, gave_up = self._withdrawals.drop_most(pool_type, pool, POOL_DELETED)
                events = gave_up + events
            outcome = self._events.commit(
                [created_at(pool.key, pool.create_revision), *guards],
                [
                    delete(pool.key),
                    delete(keys.settings(pool_type)),
                    delete(keys.pace(pool_type)),
                    delete_all(keys.tickets(pool_type)),
                    delete_all(keys.queueds(pool_type)),
                    delete_all(keys.ranks(pool_type)),
                ],
                [read(pool.key)],
                events=events,
            )
            left = [found.first for found in outcome.answers]  # nothing, if it succeeded
            if not any(kv and kv.create_revision == pool.create_revision for kv in left):
                self.clear(pool_type, [absent(pool.key)])
                return

    def clear(self, pool_type: str, guards: Sequence[Json]) -> bool:
        """Take away what is left of a pool, as long as the guards hold; returns whether they did.

        Its holders are told. The resources go last: they are what shows that something is left.
        """
        keys = self._keys
        helds, resources = self._gateway.read(
            read_all(keys.helds(pool_type)), read_all(keys.resources(pool_type), keys_only=True)
        ).answers
        for kv in helds.items:
            claim = parse_claim(kv)
            mine = [*guards, unchanged(kv.key, kv.mod_revision)]
            names = frozenset(claim.names)
            then = rewrite_claim(self._keys, pool_type, claim.without(names))
            events = self._removed(pool_type, claim, names)
            if self._events.commit(mine, then, events=events).succeeded:
                self._lost(keys.claim_key_of(claim.claim_key), claim.names)
                revoke_unused(self._gateway, claim.etcd_lease_id)
        for batch in batches([name_in(kv) for kv in resources.items], MOST_OPERATIONS // 2):
            then = [delete(keys.name(name)) for name in batch]
            then += [delete(keys.resource(pool_type, name)) for name in batch]
            if not self._gateway.commit(guards, then).succeeded:
                return False
        rest = [delete_all(keys.frees(pool_type)), delete(keys.grants(pool_type))]
        return self._gateway.commit(guards, rest).succeeded

    def _look_at(self, pool_type: str, names: Sequence[str], *, force: bool) -> _Removal:
        """See what has to go with some resources, or say why they can't."""
        keys = self._keys
        pool = self._shown.record(pool_type)
        found, helds = self._gateway.read(
            read_all(keys.resources(pool_type)), read_all(keys.helds(pool_type))
        ).answers
        resources = {name_in(kv): kv for kv in found.items}
        claims = {kv: parse_claim(kv) for kv in helds.items}
        holders = {name: claim for claim in claims.values() for name in claim.names}
        for name in names:
            if name not in resources:
                raise refusals.no_resource(pool_type, name)
            if name in holders and not force:
                raise refusals.resource_held(name, holders[name].holder_identity)
        chosen = frozenset(names)
        return _Removal(
            pool_type,
            pool,
            {name: resources[name] for name in names},
            {kv: claim for kv, claim in claims.items() if not chosen.isdisjoint(claim.names)},
        )

    def _remove(self, removal: _Removal) -> bool:
        """Take resources out, if everything is as it was seen; their holders are told."""
        keys, pool_type = self._keys, removal.pool_type
        names = frozenset(removal.resources)
        # Writing the pool wakes the head, whose request may have become impossible.
        then = [put(removal.pool.key, "")]
        for name, resource in removal.resources.items():
            then.append(delete(resource.key))
            then.append(delete(keys.name(name)))
            then.append(delete(keys.free(pool_type, last_fence(resource), name)))
        words = resources_removed(len(names))
        events = [self._event("pool changed", pool_type, list(removal.resources), words)]
        for claim in removal.claims.values():
            then += rewrite_claim(self._keys, pool_type, claim.without(names))
            gone = names & frozenset(claim.names)
            events = self._removed(pool_type, claim, gone) + events
        seen = [removal.pool, *removal.resources.values(), *removal.claims]
        outcome = self._events.commit(
            [unchanged(kv.key, kv.mod_revision) for kv in seen],
            then,
            [read(kv.key) for kv in removal.resources.values()],
            events=events,
        )
        all_gone = not any(found.first for found in outcome.answers)
        if not outcome.succeeded and not (outcome.repeated and all_gone):
            return False
        for claim in removal.claims.values():
            self._lost(
                keys.claim_key_of(claim.claim_key), [name for name in claim.names if name in names]
            )
            if names.issuperset(claim.names):
                revoke_unused(self._gateway, claim.etcd_lease_id)
        return True

    def _removed(self, pool_type: str, claim: Claim, names: frozenset[str]) -> list[Event]:
        now = self._clock.wall()
        return event_facts.ended(
            pool_type, claim, names, by="removal", now=now, reason=self._caller
        )

    def _event(
        self, kind: EventKind, pool_type: str, names: Sequence[str], reason: str = ""
    ) -> Event:
        now, caller = self._clock.wall(), self._caller
        return event_facts.of_pool(kind, pool_type, names, now=now, caller=caller, reason=reason)


class _Removal(NamedTuple):
    """Resources that are to be taken out, as they were seen, and the claims on them."""

    pool_type: str
    pool: KeyValue
    resources: dict[str, KeyValue]
    claims: dict[KeyValue, Claim]


def batches(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """So many names after the other that one transaction takes them."""
    for start in range(0, len(names), size):
        yield names[start : start + size]
