"""What all waiters of a process hear of etcd with, as long as there are any.

Threads, because who waits sleeps in poll(2), for hours, and may be busy elsewhere: the life of its
ticket must not depend on it. Two for all waiters together, however many: one for the watches, one
for the keep-alives. What they hear is only a hint; whoever is woken reads for himself.
"""

from __future__ import annotations

import threading
from typing import Protocol

from leasectl.clock import Clock
from leasectl.engines.etcd_gateway import Gateway
from leasectl.engines.etcd_keepalive import KeepAlives, Kept
from leasectl.engines.etcd_listeners import Listener
from leasectl.engines.etcd_targets import Target
from leasectl.engines.etcd_watch import EtcdWatch


class Sleeper(Kept, Listener, Protocol):
    """Who has an etcd lease and sleeps."""


class EtcdEar:
    """The threads start with the first who listens and end with the last who leaves.

    Args:
        gateway: The cluster.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._lock = threading.Lock()
        self._sleepers: set[Sleeper] = set()
        self._watch, self._keep_alives = self._make()

    def listen(self, sleeper: Sleeper, target: Target) -> None:
        """Wake somebody when its target may have changed, and keep its lease alive until then.

        From here until it leaves; who listens already listens for the new target instead.
        """
        with self._lock:
            if not self._sleepers:
                # Those of before may still be about to end.
                self._watch, self._keep_alives = self._make()
                self._watch.start()
                self._keep_alives.start()
            if sleeper not in self._sleepers:
                self._sleepers.add(sleeper)
                self._keep_alives.add(sleeper)
            self._watch.listen(sleeper, target)

    def leave(self, sleeper: Sleeper) -> None:
        with self._lock:
            if sleeper not in self._sleepers:
                return
            self._sleepers.remove(sleeper)
            self._keep_alives.remove(sleeper)
            self._watch.remove(sleeper)
            if not self._sleepers:
                self._keep_alives.close()
                self._watch.close()

    def _make(self) -> tuple[EtcdWatch, KeepAlives]:
        watch = EtcdWatch(self._gateway)
        return watch, KeepAlives(self._gateway, watch, self._clock)
