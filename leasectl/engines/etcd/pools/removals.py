"""Remove whole pools, with the leases in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.writes import Along, rewrite_claim
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Json,
    absent,
    created_at,
    delete,
    delete_all,
    none_below,
    put,
    read,
    read_all,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.key_values import name_in, type_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import (
    encode_belonging,
    encode_member,
    parse_belonging,
    parse_member,
)
from leasectl.engines.etcd.pools.shown import ShownPools
from leasectl.engines.etcd.queues.withdrawals import EtcdWithdrawals
from leasectl.engines.etcd.records import (
    Claim,
    parse_claim,
)
from leasectl.engines.event_words import POOL_DELETED
from leasectl.engines.membership import Member, set_default
from leasectl.state.event import Event
from leasectl.system.clock import Clock

# Each has three guards, and four operations at most.
_CLEARED_AT_ONCE = 30


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

    def delete_pool(self, pool_type: str, *, force: bool) -> tuple[str, ...]:
        """As `PoolAdmin.delete_pool`; returns the names that were to come to it, and stay."""
        keys, pool = self._keys, self._shown.record(pool_type)
        while True:
            self._claims.reap(pool_type)
            self._withdrawals.reap(pool_type)
            (shown,) = self._shown.pools(pool_type)
            if not force and (shown.held or shown.queue):
                raise refusals.pool_in_use(pool_type, shown.held, len(shown.queue))
            belonging = self._without_default(pool_type)
            guards = [none_below(keys.tickets(pool_type)), none_below(keys.helds(pool_type))]
            events = [self._deleted(pool_type, [each.name for each in shown.resources])]
            if force:
                guards, gave_up = self._withdrawals.drop_most(pool_type, pool, POOL_DELETED)
                events = gave_up + events
            outcome = self._events.commit(
                [created_at(pool.key, pool.create_revision), *guards, *belonging.guards],
                [
                    *belonging.then,
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
                (found,) = self._gateway.read(read_all(keys.comings(pool_type))).answers
                self.clear(pool_type, [absent(pool.key)])
                return tuple(name_in(kv) for kv in found.items if kv.value)

    def _without_default(self, pool_type: str) -> Along:
        """What has a pool no more be the default one, where it is."""
        key = self._keys.belonging()
        (found,) = self._gateway.read(read(key)).answers
        guards = (unchanged(key, revision_in(found.first)),)
        if found.first is None:
            return Along(guards)

        pools = parse_belonging(found.first, frozenset())
        if pools.default != pool_type:
            return Along(guards)
        without = encode_belonging(set_default(pools, None, 0.0), "")
        return Along(guards, (put(key, without),))

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
            then = rewrite_claim(self._keys, pool_type, claim, names)
            events = self._removed(pool_type, claim, names)
            if self._events.commit(mine, then, events=events).succeeded:
                self._lost(keys.claim_key_of(claim.claim_key), claim.names)
                self._gateway.revoke_unused(claim.etcd_lease_id)
        for batch in batches([name_in(kv) for kv in resources.items], _CLEARED_AT_ONCE):
            if not self._clear_names(pool_type, batch, guards):
                return False
        kinds = ("free", "closed", "property", "bound", "life", "coming", "grace")
        rest = [delete_all(keys.below(kind, pool_type)) for kind in kinds]
        return self._gateway.commit(guards, [*rest, delete(keys.grants(pool_type))]).succeeded

    def _clear_names(self, pool_type: str, names: Sequence[str], guards: Sequence[Json]) -> bool:
        """Have names be in no pool, but for what is expected of them; returns as `clear`.

        Somebody else may do that, too, and another put them into a pool right after.
        """
        keys = self._keys
        while self._gateway.commit(guards, ()).succeeded:
            kinds = (partial(keys.resource, pool_type), keys.name, keys.member)
            answers = self._gateway.read(*(read(key(n)) for n in names for key in kinds)).answers
            found = [each.first for each in answers]
            seen, then = list(guards), []
            for at, name in enumerate(names):
                resource, taken, fact = found[3 * at : 3 * at + 3]
                if resource is None:
                    continue
                seen.append(unchanged(resource.key, resource.mod_revision))
                then.append(delete(resource.key))
                if taken is None or type_in(taken) != pool_type:
                    continue
                seen.append(unchanged(taken.key, taken.mod_revision))
                seen.append(unchanged(keys.member(name), revision_in(fact)))
                then.append(delete(taken.key))
                member = parse_member(fact, name, pool_type)
                if member.moves_to is not None:
                    then.append(delete(keys.coming(member.moves_to, name)))
                if member.expected is not None:
                    left = Member(name, expected=member.expected)
                    then.append(put(keys.member(name), encode_member(left, "")))
                elif fact is not None:
                    then.append(delete(fact.key))
            if self._gateway.commit(seen, then).succeeded:
                return True
        return False

    def _deleted(self, pool_type: str, names: Sequence[str]) -> Event:
        now, caller = self._clock.wall(), self._caller
        return event_facts.of_pool(
            "pool deleted", pool_type, names, now=now, caller=caller, reason=""
        )

    def _removed(self, pool_type: str, claim: Claim, names: frozenset[str]) -> list[Event]:
        now = self._clock.wall()
        return event_facts.ended(
            pool_type, claim, names, by="removal", now=now, reason=self._caller
        )


def batches(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """So many names after the other that one transaction takes them."""
    for start in range(0, len(names), size):
        yield names[start : start + size]
