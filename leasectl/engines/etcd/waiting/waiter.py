"""A waiter on etcd: its etcd lease, what it waits for, and the bell that wakes it."""

from __future__ import annotations

from collections.abc import Sequence, Set

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.look import QueueView
from leasectl.engines.etcd.waiting.session import WaitSession
from leasectl.engines.etcd.waiting.targets import WatchTarget
from leasectl.model import Process, Ticket
from leasectl.system.clock import Clock
from leasectl.system.process_watch import ProcessWatch
from leasectl.system.wakeup import Wakeup

# A release ends a claim and frees its resources at once, and two watches tell of that, in any order
# but right after each other. Waiting for the second spares the head a look, which takes longer.
_SEQUEL_SECONDS = 0.002


class EtcdWaiter:
    """One waiter's ear.

    Args:
        ear: The one that it shares with the others of its process.
        lease: The etcd lease that the ticket is going to be attached to.
        ttl_seconds: Of that lease; it is kept alive at a third of it.
        clock: Where times come from.

    Attributes:
        lease: As given.
        ttl_seconds: As given.
        sent_at: When the last successful keep-alive was sent, or the request that made the lease,
            on the elapsed clock: deadlines count from it.
        target: What to listen for; set by who looks, before `listen`.
        is_unsure: Whether a claim of the ticket was sent whose answer never came.
        is_head: Whether the ticket was seen at the head of the queue, where it stays.
        fresh: What was seen with that, until somebody uses it.
        before: What was seen at the head when there wasn't enough to take.
    """

    def __init__(
        self, session: WaitSession, etcd_lease_id: int, ttl_seconds: int, clock: Clock
    ) -> None:
        self.etcd_lease_id = etcd_lease_id
        self.ttl_seconds = ttl_seconds
        self.sent_at = clock.elapsed()
        self.target = WatchTarget((), (), 0)
        self.is_unsure = False
        self.is_head = False
        self.fresh: QueueView | None = None
        self.before: QueueView | None = None
        self._session = session
        self._clock = clock
        self._processes = ProcessWatch()
        self._wakeup: Wakeup | None = None
        self._news: tuple[KeyValue, ...] = ()

    @property
    def is_overdue(self) -> bool:
        """Whether the ticket must have gone by now, for want of keep-alives."""
        return self._clock.elapsed() - self.sent_at >= self.ttl_seconds

    @property
    def has_place(self) -> bool:
        return not self.is_overdue

    def open(self) -> None:
        """Nothing is missed before: a watch starts at the revision of the look before it."""

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        self._processes.update(processes)
        if self._wakeup is None:
            self._wakeup = Wakeup()
        self._session.listen(self, self.target)
        return frozenset((self._wakeup.fd, *self._processes.fds())), self._processes.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._wakeup is not None and self._wakeup.fd in woken:
            self._wakeup.clear()
            if self.is_head and not self._news and self._wakeup.wait(_SEQUEL_SECONDS):
                self._wakeup.clear()
        ended = not woken.isdisjoint(self._processes.fds())
        self._processes.heard(woken)
        return ended

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """End its sleep; for other threads.

        Args:
            news: What has changed, if that is known: a hint like the rest. Of two threads that
                write at a time one may get lost; then what it told of is found by looking.
        """
        self._news = (*self._news, *news)
        if self._wakeup is not None:
            self._wakeup.set()

    def take_news(self) -> tuple[KeyValue, ...]:
        """What it was told since this was last asked."""
        news, self._news = self._news, ()
        return news

    def close(self) -> None:
        self._processes.close()
        self._session.leave(self)
        if self._wakeup is not None:
            self._wakeup.close()
