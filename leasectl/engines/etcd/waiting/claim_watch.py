"""A holder's watch: it is woken as soon as anybody else has changed what it holds.

Only a hint, as every watch is: whoever is woken renews, and so finds out what is left. If it says
nothing, because the member hangs that it listens to, the next renewal finds out all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.forced_ends import reason_in
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.waiting.targets import Watched, WatchTarget
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.system.wakeup import Wakeup

_FROM_NOW = -1


class EtcdClaimWatch:
    """As `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claim_key: Of the claims.
        revision: Of etcd, when they were made.
    """

    def __init__(self, gateway: Gateway, keys: Keys, claim_key: str, revision: int) -> None:
        self._watched = (Watched(keys.all_owned(claim_key), puts=True, deletes=True),)
        self._wakeup = Wakeup()
        self._news: tuple[KeyValue, ...] = ()
        self._watch = EtcdWatch(gateway)
        self._listen(revision)
        self._watch.start()

    @property
    def fd(self) -> int:
        return self._wakeup.fd

    def take(self) -> str:
        self._wakeup.clear()
        news = self._news
        self._listen(max((kv.mod_revision for kv in news), default=_FROM_NOW))
        return next(filter(None, map(reason_in, news)), "")

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """End a sleep; for the thread."""
        self._news = tuple(news)
        self._wakeup.set()

    def note(self, news: KeyValue) -> None:
        """Nothing that it listens for is quiet."""

    def close(self) -> None:
        self._watch.close()
        self._wakeup.close()

    def _listen(self, revision: int) -> None:
        self._watch.listen(self, WatchTarget(self._watched, self._watched, revision))
