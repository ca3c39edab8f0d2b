"""The session that all waiters of a process share.

Threads, because who waits sleeps in poll(2), for hours, and may be busy elsewhere: the life of its
ticket must not depend on it. Two for all waiters together, however many: one for the watches, one
for the keep-alives. What they find out is only a hint; whoever is woken reads for himself.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.waiting.keep_alives import KeepAlives, Sleeper
from leasectl.engines.etcd.waiting.targets import WatchTarget
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.system.clock import Clock


class _Threads(NamedTuple):
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
        self._threads: _Threads | None = None
        self._sleepers: set[Sleeper] = set()

    def listen(self, sleeper: Sleeper, target: WatchTarget) -> None:
        """Wake somebody when its target may have changed, and keep its ticket alive until then.

        From here until it leaves; who listens already listens for the new target instead.
        """
        with self._lock:
            if sleeper not in self._sleepers:
                if self._threads is None or not self._threads.keep_alives.add(sleeper):
                    self._threads = self._start(sleeper)
                self._sleepers.add(sleeper)
            assert self._threads is not None
            if not self._threads.watch.listen(sleeper, target):
                self._threads.keep_alives.complete_soon(sleeper, target)

    def leave(self, sleeper: Sleeper) -> None:
        """Have somebody be woken no more and its ticket not be kept alive, if they are."""
        with self._lock:
            if self._threads is not None and sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                self._threads.watch.remove(sleeper)
                self._threads.keep_alives.remove(sleeper)

    def _start(self, first: Sleeper) -> _Threads:
        watch = EtcdWatch(self._gateway, may_skip=True)
        keep_alives = KeepAlives(self._gateway, watch, self._clock)
        keep_alives.add(first)
        watch.start()
        keep_alives.start()
        return _Threads(watch, keep_alives)
