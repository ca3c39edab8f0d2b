"""Write changes, one transaction each, with their events.

A word tells whether an earlier try has made them, whose answer was lost: it is in each ``member/``
and ``name/`` that is written.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.claims.writes import NOTHING_ALONG, Along
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue, Outcome, read
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.changes import Renaming, events_of, guards_of, operations_of
from leasectl.engines.etcd.members.parts import in_parts
from leasectl.engines.etcd.members.records import is_by
from leasectl.engines.etcd.members.views import MembersView
from leasectl.engines.etcd.records import encode_taken
from leasectl.system.clock import Clock

_WORD_BYTES = 8


class Written(NamedTuple):
    """What came of a change.

    Args:
        is_done: It has been made; else something has changed, and one has to look again.
        revision: Etcd's, right after it; 0 where its answer was lost.
    """

    is_done: bool
    revision: int = 0


class MemberWrites:
    """Writes memberships below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there are some for each change.
        clock: Where times come from.
        caller: Who does it, for the record of events.
    """

    def __init__(
        self, gateway: Gateway, keys: Keys, events: EtcdEvents, *, clock: Clock, caller: str = ""
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._clock = clock
        self._caller = caller

    def settle(self, view: MembersView) -> bool:
        """Have that be written which has become so by itself: what is over, what may be had again.

        Returns:
            Whether there was anything to write, or somebody else has been faster.
        """
        types, word = view.pools.types, new_word()
        renamings = [
            Renaming(each, each.now(types), word)
            for each in view.names
            if not each.is_settled or each.now(types) != each.member
        ]
        for part in in_parts(self._keys, renamings):
            self.write(view, part)
        return bool(renamings)

    def write(
        self,
        view: MembersView,
        renamings: Sequence[Renaming],
        *,
        along: Along = NOTHING_ALONG,
    ) -> Written:
        """Write what becomes of some names, if all of them are as they were seen.

        Args:
            view: What was seen.
            renamings: What becomes of them, all with one word.
            along: What goes with it, and is told before that.
        """
        keys = self._keys
        renamings = [each.with_leases() for each in renamings]
        self._make_leases(renamings)
        changes = events_of(renamings, now=self._clock.wall(), caller=self._caller)
        reads = [read(keys.name(each.after.name)) for each in renamings]
        reads += [read(keys.member(each.after.name)) for each in renamings]
        try:
            outcome = self._events.commit(
                [*guards_of(keys, view, renamings), *along.guards],
                [*operations_of(keys, view, renamings), *along.then],
                reads,
                events=[*along.events, *changes],
            )
        except EtcdLeaseGone:  # it has taken too long
            return Written(is_done=False)
        is_done = outcome.succeeded or (outcome.repeated and _is_so(outcome, renamings))
        self._end_leases(renamings, are_new=not is_done)
        return Written(is_done, outcome.revision if outcome.succeeded else 0)

    def _make_leases(self, renamings: Sequence[Renaming]) -> None:
        for each in renamings:
            lifetime = each.after.lifetime
            if each.life_id and lifetime is not None and lifetime.ttl_seconds is not None:
                self._gateway.grant(each.life_id, math.ceil(lifetime.ttl_seconds))
            if each.grace_id:
                self._gateway.grant(each.grace_id, math.ceil(each.grace_seconds))

    def _end_leases(self, renamings: Sequence[Renaming], *, are_new: bool) -> None:
        """End the etcd leases that nothing is attached to: those before, or the new ones."""
        for each in renamings:
            if are_new:
                unused = [each.life_id, each.grace_id]
            else:
                ends_life = each.begins_life or each.after.lifetime is None
                before = (each.view.life if ends_life else None, _grace_over(each))
                unused = [kv.etcd_lease_id for kv in before if kv is not None]
            for etcd_lease_id in filter(None, unused):
                self._gateway.revoke_unused(etcd_lease_id)


def new_word() -> str:
    """A word that nobody else would choose."""
    return secrets.token_hex(_WORD_BYTES)


def _grace_over(renaming: Renaming) -> KeyValue | None:
    return None if renaming.is_held_back and not renaming.is_moved else renaming.view.grace


def _is_so(outcome: Outcome, renamings: Sequence[Renaming]) -> bool:
    """Whether that is there which this very change has written, or nothing where it took away."""
    number = len(renamings)
    names = [found.first for found in outcome.answers[:number]]
    facts = [found.first for found in outcome.answers[number : 2 * number]]
    for renaming, taken, fact in zip(renamings, names, facts):
        new_name = encode_taken(renaming.after.pool or "", renaming.word)
        if is_by(fact, renaming.word) or (taken is not None and taken.value == new_name):
            return True
    return all(each.after.pool is None for each in renamings) and not any(names)
