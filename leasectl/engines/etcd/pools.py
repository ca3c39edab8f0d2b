"""The pools in etcd themselves: making, changing, showing and deleting them.

What doesn't fit into one transaction is done in batches, each of them whole. A pool that is being
made can't be seen before the last; names left behind by who died at it don't count as taken.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims import EtcdClaims
from leasectl.engines.etcd.forced_ends import EtcdForcedEnds
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
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
from leasectl.engines.etcd.key_values import name_in, type_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.records import (
    Claim,
    encode_free,
    encode_settings,
    encode_taken,
    last_fence,
    parse_claim,
)
from leasectl.engines.etcd.shown import ShownPools, pool_types
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.errors import InvalidRequest
from leasectl.model import Process
from leasectl.system.clock import Clock

_MAKING_SECONDS = 60
# A name takes three operations to be added and, with its claim, eight at most to be removed.
_ADDED_AT_ONCE, _REMOVED_AT_ONCE = 40, 15


class EtcdPools:
    """The pools below one prefix of a cluster, as `PoolAdmin`.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claims: The claims in it.
        lost: Told of claims that were taken by force.
        clock: Where times come from.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        claims: EtcdClaims,
        *,
        lost: LostListener,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._lost = lost
        self._shown = ShownPools(gateway, keys, clock=clock)

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        return self._shown.pools(pool_type, expiries=expiries)

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        self._check_untaken(pool_type, names)
        key, etcd_lease_id = self._keys.pool(pool_type), new_etcd_lease_id()
        making = f"being made under {etcd_lease_id}"
        self._gateway.grant(etcd_lease_id, _MAKING_SECONDS)
        made = self._gateway.commit(
            [absent(key)], [put(key, making, etcd_lease_id=etcd_lease_id)], [read(key)]
        )
        born = made.revision
        if not made.succeeded:
            (there,) = made.answers
            if there.first is None or there.first.value != making:
                self._claims.revoke(etcd_lease_id)
                raise refusals.pool_exists(pool_type)
            born = there.first.create_revision
        try:
            self._clear(pool_type, [created_at(key, born)])
            for batch in _batches(names, _ADDED_AT_ONCE):
                self._add(pool_type, batch, born)
            # From here on it can be seen, and is attached to no lease any more.
            seen = [put(key, ""), put(self._keys.settings(pool_type), encode_settings(settings))]
            if not self._gateway.commit([created_at(key, born)], seen).succeeded:
                raise refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))
        except BaseException:
            self._clear(pool_type, [created_at(key, born)])
            raise
        finally:
            self._claims.revoke(etcd_lease_id)

    def change_settings(self, pool_type: str, settings: PoolSettings) -> None:
        pool, key = self._shown.record(pool_type), self._keys.settings(pool_type)
        guard = created_at(pool.key, pool.create_revision)
        if not self._gateway.commit([guard], [put(key, encode_settings(settings))]).succeeded:
            raise refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        born = self._shown.record(pool_type).create_revision
        self._check_untaken(pool_type, names)
        added: list[str] = []
        try:
            for batch in _batches(names, _ADDED_AT_ONCE):
                self._add(pool_type, batch, born)
                added += batch
        except InvalidRequest:
            if added:
                self.remove_resources(pool_type, added, force=False)
            raise

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        names = list(dict.fromkeys(names))
        self._claims.reap(pool_type)
        self._look_at(pool_type, names, force=force)  # so that all are refused, or none
        for batch in _batches(names, _REMOVED_AT_ONCE):
            while not self._remove(self._look_at(pool_type, batch, force=force)):
                pass

    def end_early(
        self, claim_key: str, names: Sequence[str], *, guard: Process | None, reason: str
    ) -> tuple[str, ...]:
        forced = EtcdForcedEnds(self._gateway, self._keys, self._claims, lost=self._lost)
        return forced.end(claim_key, names, reason)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        keys, pool = self._keys, self._shown.record(pool_type)
        while True:
            self._claims.reap(pool_type)
            (shown,) = self._shown.pools(pool_type)
            if not force and (shown.held or shown.queue):
                raise refusals.pool_in_use(pool_type, shown.held, len(shown.queue))
            unused = [none_below(keys.tickets(pool_type)), none_below(keys.helds(pool_type))]
            outcome = self._gateway.commit(
                [created_at(pool.key, pool.create_revision), *(() if force else unused)],
                [
                    delete(pool.key),
                    delete(keys.settings(pool_type)),
                    delete_all(keys.tickets(pool_type)),
                ],
                [read(pool.key)],
            )
            left = [found.first for found in outcome.answers]  # nothing, if it succeeded
            if not any(kv and kv.create_revision == pool.create_revision for kv in left):
                self._clear(pool_type, [absent(pool.key)])
                return

    # Adding

    def _check_untaken(self, new_in: str, names: Sequence[str]) -> None:
        """Refuse a name that is in some pool, or given twice."""
        taken: dict[str, str] = {}
        for batch in _batches(names, MOST_OPERATIONS):
            answers = self._gateway.read(*(read(self._keys.name(name)) for name in batch)).answers
            found = {name_in(each.first): type_in(each.first) for each in answers if each.first}
            for pool_type in set(found.values()):
                if self._clear(pool_type, [absent(self._keys.pool(pool_type))]):
                    found = {name: of for name, of in found.items() if of != pool_type}
            taken.update(found)
        for name in names:
            if name in taken:
                raise refusals.name_taken(name, taken[name])
            taken[name] = new_in

    def _add(self, pool_type: str, names: Sequence[str], born: int) -> None:
        keys, taken_for = self._keys, encode_taken(pool_type, secrets.token_hex(8))
        then: list[Json] = []
        for name in names:
            then.append(put(keys.name(name), taken_for))
            then.append(put(keys.resource(pool_type, name), ""))
            then.append(put(keys.free(pool_type, 0, name), encode_free(None, 0)))
        outcome = self._gateway.commit(
            [created_at(keys.pool(pool_type), born), *(absent(keys.name(name)) for name in names)],
            then,
            [read(keys.name(name)) for name in names],
        )
        if outcome.succeeded:
            return
        taken = [found.first for found in outcome.answers if found.first is not None]
        if [kv.value for kv in taken] == [taken_for] * len(names):
            return  # by the try whose answer was lost
        if taken:
            raise refusals.name_taken(name_in(taken[0]), type_in(taken[0]))
        raise refusals.no_pool(pool_type, pool_types(self._gateway, self._keys))

    # Removing

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
        for claim in removal.claims.values():
            then += self._claims.rewrite(pool_type, claim.without(names))
        seen = [removal.pool, *removal.resources.values(), *removal.claims]
        outcome = self._gateway.commit(
            [unchanged(kv.key, kv.mod_revision) for kv in seen],
            then,
            [read(kv.key) for kv in removal.resources.values()],
        )
        all_gone = not any(found.first for found in outcome.answers)
        if not outcome.succeeded and not (outcome.repeated and all_gone):
            return False
        for claim in removal.claims.values():
            self._lost(
                keys.claim_key_of(claim.claim_key), [name for name in claim.names if name in names]
            )
            if names.issuperset(claim.names):
                self._claims.revoke(claim.etcd_lease_id)
        return True

    def _clear(self, pool_type: str, guards: Sequence[Json]) -> bool:
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
            then = self._claims.rewrite(pool_type, claim.without(frozenset(claim.names)))
            if self._gateway.commit(mine, then).succeeded:
                self._lost(keys.claim_key_of(claim.claim_key), claim.names)
                self._claims.revoke(claim.etcd_lease_id)
        for batch in _batches([name_in(kv) for kv in resources.items], MOST_OPERATIONS // 2):
            then = [delete(keys.name(name)) for name in batch]
            then += [delete(keys.resource(pool_type, name)) for name in batch]
            if not self._gateway.commit(guards, then).succeeded:
                return False
        rest = [delete_all(keys.frees(pool_type)), delete(keys.grants(pool_type))]
        return self._gateway.commit(guards, rest).succeeded


class _Removal(NamedTuple):
    """Resources that are to be taken out, as they were seen, and the claims on them."""

    pool_type: str
    pool: KeyValue
    resources: dict[str, KeyValue]
    claims: dict[KeyValue, Claim]


def _batches(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]
