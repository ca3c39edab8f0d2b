"""A waiter: its ticket, its queue, and the wakeup that ends its sleep."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager

from leasectl.engines.contract import Outlook
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.queues.queues import EtcdQueues
from leasectl.engines.etcd.queues.ticket import EtcdTicket
from leasectl.engines.etcd.waiting.session import WaitSession
from leasectl.engines.facts import Standing
from leasectl.model import Process
from leasectl.system.process_watch import ProcessWatch
from leasectl.system.wakeup import Wakeup

# A release ends a claim and frees its resources at once, and two watches tell of that, in any order
# but right after each other. Waiting for the second spares the head a look, which takes longer.
_SEQUEL_SECONDS = 0.002


class EtcdWaiter:
    """One waiter, as `Waiter`.

    Args:
        ticket: Its own; what to listen for is set there, by who looks, before `listen`.
        queues: The ticket is going to be in one of them.
        session: The one that it shares with the others of its process.
        limited: What is asked inside isn't waited for much beyond the waiter's deadline.

    Attributes:
        ticket: As given.
    """

    def __init__(
        self,
        ticket: EtcdTicket,
        queues: EtcdQueues,
        session: WaitSession,
        *,
        limited: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.ticket = ticket
        self._queues = queues
        self._session = session
        self._limited = limited
        self._processes = ProcessWatch()
        self._wakeup: Wakeup | None = None

    @property
    def has_place(self) -> bool:
        return not self.ticket.is_overdue

    def check(self) -> None:
        with self._limited():
            self._queues.check(self.ticket)

    def enqueue(self, *, again: bool = False) -> None:
        with self._limited():
            self._queues.enqueue(self.ticket, again=again)

    def claim(self) -> Outlook:
        with self._limited():
            return self._queues.claim(self.ticket)

    def standing(self) -> Standing:
        with self._limited():
            return self._queues.standing(self.ticket)

    def dequeue(self, why: str = "") -> None:
        with self._limited():
            self._queues.dequeue(self.ticket, why)

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        # Nothing is missed before: a watch starts at the revision of the look before it.
        self._processes.update(processes)
        if self._wakeup is None:
            self._wakeup = Wakeup()
        self._session.listen(self, self.ticket.target)
        return frozenset((self._wakeup.fd, *self._processes.fds())), self._processes.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._wakeup is not None and self._wakeup.fd in woken:
            self._wakeup.clear()
            awaits_sequel = self.ticket.is_head and not self.ticket.news
            if awaits_sequel and self._wakeup.wait(_SEQUEL_SECONDS):
                self._wakeup.clear()
        ended = not woken.isdisjoint(self._processes.fds())
        self._processes.heard(woken)
        return ended

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """End its sleep; for other threads.

        Args:
            news: What has changed, if that is known.
        """
        self.ticket.add_news(news)
        if self._wakeup is not None:
            self._wakeup.set()

    def note(self, news: KeyValue) -> None:
        """A grant was made; for other threads."""
        self.ticket.note_grant(news.mod_revision)

    def close(self) -> None:
        self._processes.close()
        self._session.leave(self)
        if self._wakeup is not None:
            self._wakeup.close()
