"""Wake a holder when others change what it holds.

Only a hint, as every watch is: whoever is woken renews, and so finds out what is left. If it says
nothing, because the member hangs that it listens to, the next renewal finds out all the same.
"""

from __future__ import annotations

from leasectl.engines.etcd.claims.writes import reason_in
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.waiting.own_watch import OwnWatch
from leasectl.engines.etcd.waiting.targets import Watched
from leasectl.engines.notes import ClaimNews

_FROM_NOW = -1


class EtcdClaimWatch:
    """Implements `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claim_key: Of the claims.
        revision: Of etcd, when they were made.
    """

    def __init__(self, gateway: Gateway, keys: Keys, claim_key: str, revision: int) -> None:
        owned = Watched(keys.all_owned(claim_key), puts=True, deletes=True)
        self._watch = OwnWatch(gateway, owned, revision)

    @property
    def fd(self) -> int:
        return self._watch.fd

    def take(self) -> ClaimNews:
        news = self._watch.take()
        self._watch.listen(max((kv.mod_revision for kv in news), default=_FROM_NOW))
        return ClaimNews(next(filter(None, map(reason_in, news)), ""))

    def close(self) -> None:
        self._watch.close()
