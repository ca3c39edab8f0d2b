"""Who follows events is woken when there may be more.

Only a hint, as every watch is: whoever is woken reads, by the numbers of events. A member that
hangs doesn't say so; therefore it is asked to say something now and then, and left if it doesn't.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from leasectl.engines.etcd.event_records import last_number_at
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.waiting.targets import Watched, WatchTarget
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.errors import LeaseError
from leasectl.system.wakeup import Wakeup

# A member that was asked to says where it is every 10 to 11 minutes.
_LONGEST_SILENCE_SECONDS = 900.0


class EtcdEventWatch:
    """As `EventWatch`; its thread ends soon after it is closed.

    Args:
        gateway: The cluster.
        keys: Where things are in it.

    Raises:
        LeaseError: It can't be asked where it is.
    """

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway = gateway
        self._watched = (Watched(keys.events(), puts=True),)
        self._seen = gateway.read().revision
        self._news: tuple[KeyValue, ...] = ()
        self._wakeup = Wakeup()
        self._watch = EtcdWatch(gateway, longest_silence_seconds=_LONGEST_SILENCE_SECONDS)
        self._listen()
        self._watch.start()

    @property
    def fd(self) -> int:
        return self._wakeup.fd

    def clear(self) -> int:
        self._wakeup.clear()
        news, self._news = self._news, ()
        before = 0
        if news:
            before = last_number_at(min(kv.mod_revision for kv in news) - 1)
            self._seen = max(kv.mod_revision for kv in news)
        else:  # what it has seen last may have been forgotten by etcd
            with contextlib.suppress(LeaseError):
                self._seen = self._gateway.read().revision
        self._listen()
        return before

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """End a sleep; for the thread."""
        self._news = tuple(news)
        self._wakeup.set()

    def note(self, news: KeyValue) -> None:
        """Nothing that it listens for is quiet."""

    def close(self) -> None:
        self._watch.close()
        self._wakeup.close()

    def _listen(self) -> None:
        self._watch.listen(self, WatchTarget(self._watched, self._watched, self._seen))
