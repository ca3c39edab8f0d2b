"""Take names from their pools by force while they are held."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims.writes import Along, rewrite_claim
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import Json
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.changes import Renaming
from leasectl.engines.etcd.records import Claim
from leasectl.state.event import Event


class Taking:
    """What their holders lose by that.

    Args:
        keys: Where things are.
        renamings: All that becomes of names; few of them mean that.
    """

    def __init__(self, keys: Keys, renamings: Sequence[Renaming]) -> None:
        self._keys = keys
        self._claims: dict[str, tuple[str, Claim]] = {}  # with its pool, by where it was read
        self._names: dict[str, set[str]] = {}
        for each in renamings:
            holding, pool = each.view.holding, each.before.pool
            if each.is_moved and holding is not None and pool is not None:
                self._claims[holding.held.key] = pool, holding.claim
                self._names.setdefault(holding.held.key, set()).add(each.after.name)

    def along(self, *, now: float, caller: str) -> Along:
        """What goes with it in its transaction.

        Args:
            now: Wall clock, in seconds.
            caller: Who does it, for the record of events.
        """
        then: list[Json] = []
        events: list[Event] = []
        for key, (pool, claim) in self._claims.items():
            names = frozenset(self._names[key])
            then += rewrite_claim(self._keys, pool, claim, names)
            events += event_facts.ended(pool, claim, names, by="removal", now=now, reason=caller)
        return Along(then=tuple(then), events=tuple(events))

    def tell(self, gateway: Gateway, lost: LostListener) -> None:
        """Tell the holders, once it is so."""
        for key, (_, claim) in self._claims.items():
            names = [name for name in claim.names if name in self._names[key]]
            lost(self._keys.claim_key_of(claim.claim_key), names)
            if len(names) == len(claim.names):
                gateway.revoke_unused(claim.etcd_lease_id)
