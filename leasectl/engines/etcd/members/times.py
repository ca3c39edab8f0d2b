"""Names that enter or leave pools by time or by expiry.

Nobody may be there to tell of it: the process that has put it there has gone, or its holder has.
So whoever waits for more than there is looks, as long as ``coming/`` says that there is something,
and when it may have come; and whoever shows pools.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.claims.claims import EtcdClaims, Reaped
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import ROUNDED_SECONDS, Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue, delete, unchanged
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.views import NameView, see
from leasectl.engines.etcd.members.writes import MemberWrites
from leasectl.system.clock import Clock, earliest
from leasectl.text.naming import is_name


class MemberTimes:
    """Sees what is over below one prefix of a cluster, and has it be so.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there are some for what has come.
        claims: The claims in it.
        clock: Where times come from.
    """

    def __init__(
        self, gateway: Gateway, keys: Keys, events: EtcdEvents, claims: EtcdClaims, *, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._clock = clock
        self._writes = MemberWrites(gateway, keys, events, clock=clock)

    def settle(self, names: Sequence[str]) -> bool:
        """Have that be written which has become so of names by itself; returns whether it had."""
        return self._writes.settle(see(self._gateway, self._keys, names))

    def see(self, pool_type: str, comings: Sequence[KeyValue]) -> Reaped:
        """See whether something has come, and have it be there.

        Args:
            pool_type: Where it comes.
            comings: What says so.

        Returns:
            Whether it has, or comes no more; and when to look again if it hasn't.
        """
        sources = {kv.value for kv in comings if is_name(kv.value)}
        reaped = [self._claims.reap(each) for each in sorted(sources)]
        view = see(self._gateway, self._keys, list(map(name_in, comings)))
        settled = self._writes.settle(view)
        stale = [
            kv
            for kv, each in zip(comings, view.names)
            if each.is_settled and not _comes(each, pool_type)
        ]
        for kv in stale:  # of a name that doesn't come any more
            self._gateway.commit([unchanged(kv.key, kv.mod_revision)], [delete(kv.key)])
        any_came = settled or bool(stale) or any(each.any for each in reaped)
        if any_came:
            return Reaped(any=True, next_at=None)
        times = [self._due(each) for each in view.names]
        return Reaped(any=False, next_at=earliest(*times, *(each.next_at for each in reaped)))

    def _due(self, view: NameView) -> float | None:
        """When it may have come, on the elapsed clock; None where its holder has all the time."""
        etcd_lease_id = 0
        if view.grace is not None:
            etcd_lease_id = view.grace.etcd_lease_id
        elif view.holding is not None and view.holding.claim.lease_duration_seconds is not None:
            etcd_lease_id = view.holding.claim.etcd_lease_id
        if not etcd_lease_id:
            return None
        left = self._gateway.time_left(etcd_lease_id)
        return self._clock.elapsed() + left + ROUNDED_SECONDS


def _comes(view: NameView, pool_type: str) -> bool:
    return view.member.moves_to == pool_type or view.is_held_back
