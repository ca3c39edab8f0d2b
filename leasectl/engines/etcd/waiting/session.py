"""What all waiters of a process hear of etcd with, as long as there are any.

Threads, because who waits sleeps in poll(2), for hours, and may be busy elsewhere: the life of its
ticket must not depend on it. Two for all waiters together, however many: one for the watches, one
for the keep-alives. What they hear is only a hint; whoever is woken reads for himself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.waiting.keep_alives import KeepAlives, Kept
from leasectl.engines.etcd.waiting.listeners import Listener
from leasectl.engines.etcd.waiting.targets import WatchTarget
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.system.clock import Clock


class Sleeper(Listener, Kept, Protocol):
    """Who has an etcd lease and sleeps."""

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """As both have it."""


class _Pair(NamedTuple):
    watch: EtcdWatch
    keep_alives: KeepAlives


class WaitSession:
    """The threads start with the first who listens and end soon after the last has left.

    Args:
        gateway: The cluster.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._lock = threading.Lock()
        self._pair: _Pair | None = None
        self._sleepers: set[Sleeper] = set()

    def listen(self, sleeper: Sleeper, target: WatchTarget) -> None:
        """Wake somebody when its target may have changed, and keep its lease alive until then.

        From here until it leaves; who listens already listens for the new target instead.
        """
        with self._lock:
            if sleeper not in self._sleepers:
                if self._pair is None or not self._pair.keep_alives.add(sleeper):
                    self._pair = self._start(sleeper)
                self._sleepers.add(sleeper)
            assert self._pair is not None
            self._pair.watch.listen(sleeper, target)

    def leave(self, sleeper: Sleeper) -> None:
        with self._lock:
            if self._pair is not None and sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                self._pair.watch.remove(sleeper)
                self._pair.keep_alives.remove(sleeper)

    def _start(self, first: Sleeper) -> _Pair:
        watch = EtcdWatch(self._gateway)
        keep_alives = KeepAlives(self._gateway, watch, self._clock)
        keep_alives.add(first)
        watch.start()
        keep_alives.start()
        return _Pair(watch, keep_alives)
