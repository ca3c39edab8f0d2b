"""Make, change, show and delete pools.

What doesn't fit into one transaction is done in batches, each of them whole. A pool that is being
made can't be seen before the last; names left behind by who died at it don't count as taken.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.forced_ends import EtcdForcedEnds
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    MOST_OPERATIONS,
    Json,
    KeyValue,
    absent,
    created_at,
    delete,
    put,
    read,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.key_values import name_in, type_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.members import EtcdMembers
from leasectl.engines.etcd.members.records import parse_belonging, parse_member
from leasectl.engines.etcd.pools.listing import no_pool
from leasectl.engines.etcd.pools.removals import PoolRemovals, batches
from leasectl.engines.etcd.pools.settings import write_settings
from leasectl.engines.etcd.pools.shown import ShownPools
from leasectl.engines.etcd.records import (
    encode_free,
    encode_settings,
    encode_taken,
)
from leasectl.engines.event_words import pool_made, settings_changed
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.membership import add, belongs_to, remove
from leasectl.errors import NotFound
from leasectl.model import Process
from leasectl.state.event import Event, EventKind
from leasectl.system.clock import Clock
from leasectl.text.naming import is_reserved

if TYPE_CHECKING:
    from leasectl.engines.etcd.members.members import EtcdMembers
    from leasectl.engines.membership import Member
    from leasectl.engines.membership import Pools as Belonging

_MAKING_SECONDS = 60
# Of one resource, while others wait for it who would make it themselves.
_MAKING_ON_DEMAND_SECONDS = 4
# Each takes three operations.
_ADDED_AT_ONCE = 40


class EtcdPools:
    """The pools below one prefix of a cluster, as `PoolAdmin`.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of what happens here.
        claims: The claims in it.
        lost: Told of claims that were taken by force.
        clock: Where times come from.
        caller: Who makes and changes them, for the record of events.
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
        caller: str = "",
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._clock = clock
        self._caller = caller
        self._claims = claims
        self._lost = lost
        self._removals = PoolRemovals(
            gateway, keys, events, claims, lost=lost, clock=clock, caller=caller
        )
        self._shown = ShownPools(gateway, keys, clock=clock)

    @property
    def members(self) -> EtcdMembers:
        """What is so of the names in them."""
        return EtcdMembers(
            self._gateway,
            self._keys,
            self._events,
            self._claims,
            clear=self._clear_deleted,
            lost=self._lost,
            clock=self._clock,
            caller=self._caller,
        )

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        from leasectl.engines.etcd.members.times import MemberTimes

        times = MemberTimes(
            self._gateway, self._keys, self._events, self._claims, clock=self._clock
        )
        return self._shown.pools(pool_type, expiries=expiries, settle=times.settle)

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        guards = self._check_untaken(pool_type, names)
        key, etcd_lease_id = self._keys.pool(pool_type), new_etcd_lease_id()
        making = f"being made under {etcd_lease_id}"
        seconds = _MAKING_ON_DEMAND_SECONDS if is_reserved(pool_type) else _MAKING_SECONDS
        self._gateway.grant(etcd_lease_id, seconds)
        try:
            made = self._gateway.commit(
                [absent(key)], [put(key, making, etcd_lease_id=etcd_lease_id)], [read(key)]
            )
            born = made.revision
            if not made.succeeded:
                (there,) = made.answers
                if there.first is None or there.first.value != making:
                    raise refusals.pool_exists(pool_type)
                born = there.first.create_revision
            try:
                self._fill(pool_type, names, settings, born, guards)
            except BaseException:
                # The last step may be done, or on its way, and nobody has said so: what is made is
                # attached to that no longer, and what isn't can't be made any more.
                self._gateway.revoke_unused(etcd_lease_id)
                self._removals.clear(pool_type, [absent(key)])
                raise
        finally:
            self._gateway.revoke_unused(etcd_lease_id)

    def _fill(
        self,
        pool_type: str,
        names: Sequence[str],
        settings: PoolSettings,
        born: int,
        guards: Mapping[str, Json],
    ) -> None:
        """Put names into a pool that was born at that revision, and then have it be seen."""
        key = self._keys.pool(pool_type)
        self._removals.clear(pool_type, [unchanged(key, born)])
        for batch in batches(names, _ADDED_AT_ONCE):
            self._add(pool_type, batch, born, guards)
        # From here on it can be seen, and is attached to no lease any more.
        seen = [
            put(key, ""),
            put(self._keys.settings(pool_type), encode_settings(settings)),
            delete(self._keys.pace(pool_type)),
        ]
        event = self._event("pool made", pool_type, names, pool_made(len(names), settings))
        outcome = self._events.commit([unchanged(key, born)], seen, [read(key)], events=[event])
        if not outcome.succeeded and not _is_made(outcome.answers[0].first, born):
            raise no_pool(self._gateway, self._keys, pool_type)

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        pool = self._shown.record(pool_type)

        def tell(before: PoolSettings) -> Event:
            return self._event("pool changed", pool_type, (), settings_changed(before, settings))

        while True:
            written = write_settings(
                self._gateway, self._keys, self._events, pool_type, settings, seen=seen, tell=tell
            )
            if written != "disturbed":
                return written == "written"
            if self._shown.record(pool_type).create_revision != pool.create_revision:
                raise no_pool(self._gateway, self._keys, pool_type)

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        self._shown.record(pool_type)
        _check_once(pool_type, names)

        def decide(member: Member, pools: Belonging) -> Member:
            if member.pool is not None:
                raise refusals.name_taken(member.name, member.pool)
            return add(member, pool_type, pools)

        self.members.update(names, decide)

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        self._shown.record(pool_type)
        wanted = list(dict.fromkeys(names))
        self.members.update(wanted, lambda member, _: remove(member, pool_type, force=force))

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool = False,
    ) -> tuple[str, ...]:
        forced = EtcdForcedEnds(
            self._gateway,
            self._keys,
            self._events,
            self._claims,
            lost=self._lost,
            clock=self._clock,
        )
        return forced.end(claim_key, names, reason, at_once=at_once)

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        try:
            staying = self._removals.delete_pool(pool_type, force=force)
        except NotFound:
            self._clear_deleted(pool_type)  # whoever made or deleted it may have died at that
            raise
        if staying:
            self.members.members(staying)  # whoever looks at them has them stay

    # Adding

    def _check_untaken(self, new_in: str, names: Sequence[str]) -> dict[str, Json]:
        """Refuse a name that is in some pool, belongs to another, or is given twice.

        Returns:
            For each name the guard that nothing else is said of it by now; under "" the one that
            nothing else is said of names at all.
        """
        keys, taken, guards = self._keys, dict[str, str](), dict[str, Json]()
        for batch in batches(names, MOST_OPERATIONS // 2 - 1):
            belonging, *answers = self._gateway.read(
                read(keys.belonging()),
                *(read(keys.name(name)) for name in batch),
                *(read(keys.member(name)) for name in batch),
            ).answers
            there, facts = answers[: len(batch)], answers[len(batch) :]
            found = {name_in(each.first): type_in(each.first) for each in there if each.first}
            for pool_type in set(found.values()):
                if self._clear_deleted(pool_type):
                    found = {name: of for name, of in found.items() if of != pool_type}
            taken.update(found)
            said = {name: each.first for name, each in zip(batch, facts)}
            if belonging.first is not None or any(said.values()):
                _check_belonging(new_in, said, belonging.first)
            guards[""] = unchanged(keys.belonging(), revision_in(belonging.first))
            for name, fact in said.items():
                guards[name] = unchanged(keys.member(name), revision_in(fact))
        for name in names:
            if name in taken:
                raise refusals.name_taken(name, taken[name])
        _check_once(new_in, names)
        return guards

    def _clear_deleted(self, pool_type: str) -> bool:
        """Take away what is left of a pool that was deleted; returns whether it was."""
        return self._removals.clear(pool_type, [absent(self._keys.pool(pool_type))])

    def _add(
        self, pool_type: str, names: Sequence[str], born: int, unsaid: Mapping[str, Json]
    ) -> None:
        keys, taken_for = self._keys, encode_taken(pool_type, secrets.token_hex(8))
        then: list[Json] = []
        for name in names:
            then.append(put(keys.name(name), taken_for))
            then.append(put(keys.resource(pool_type, name), ""))
            then.append(put(keys.free(pool_type, 0, name), encode_free(None, 0)))
        guards = [created_at(keys.pool(pool_type), born), *(unsaid[each] for each in ("", *names))]
        outcome = self._gateway.commit(
            [*guards, *(absent(keys.name(name)) for name in names)],
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
        (pool,) = self._gateway.read(read(keys.pool(pool_type))).answers
        if pool.first is None or pool.first.create_revision != born:
            raise no_pool(self._gateway, self._keys, pool_type)
        # Somebody has just said more of them.
        self._add(pool_type, names, born, self._check_untaken(pool_type, names))

    def _event(self, kind: EventKind, pool_type: str, names: Sequence[str], reason: str) -> Event:
        now, caller = self._clock.wall(), self._caller
        return event_facts.of_pool(kind, pool_type, names, now=now, caller=caller, reason=reason)


def _check_once(new_in: str, names: Sequence[str]) -> None:
    """Refuse a name that is given twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refusals.name_taken(name, new_in)
        seen.add(name)


def _check_belonging(
    new_in: str, said: Mapping[str, KeyValue | None], belonging: KeyValue | None
) -> None:
    """Refuse a name of which is said that it belongs to another pool."""
    pools = parse_belonging(belonging, frozenset())
    for name, fact in said.items():
        expected = belongs_to(parse_member(fact, name, None), pools)
        if expected is not None and expected != new_in:
            raise refusals.belongs_elsewhere(name, expected)


def _is_made(pool: KeyValue | None, born: int) -> bool:
    """Whether an earlier try has made it, whose answer was lost."""
    return pool is not None and pool.create_revision == born and not pool.value
