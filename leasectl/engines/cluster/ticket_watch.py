"""Follow three objects only, for waiters far behind in the queue.

The first is so many places before it that its follower is one of the few next when it has gone,
and follows the pool from then on, long before it is its turn.

A server finds those who watch an object by its name at once, however many they are; those who watch
by a label it has to ask one by one. So a thousand who wait cost a write what one does, and all but
the few who are next hear of nothing that isn't about them. What they see of others is from their
last list: whoever is before them and says nothing for half of its ttl has them list again, and so
all who are dead by then are found at once, and not one after the other. The pool itself is written
when it may meet less than before, or grants otherwise; who was killed right before that has them
look after ten minutes.

A waiter that is woken by an event looks at a view that isn't older. Without that it might read the
view that a watch of the pool keeps and that hasn't got the event yet, see itself behind the same
ticket, and follow one that is gone.
"""

from __future__ import annotations

import threading
from functools import partial

from leasectl.engines.cluster.objects import (
    Happened,
    PoolObject,
    Selection,
    TicketObject,
    Watch,
)
from leasectl.engines.cluster.place import Place
from leasectl.engines.cluster.pool_watch import Sleeper
from leasectl.errors import LeaseError
from leasectl.http.no_answer import WatchEnded
from leasectl.system.threads import start_thread

_LONGEST_SECONDS = 600.0
# One watch after the other that ends at once isn't begun again in a spin.
_LEAST_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 1.0


class TicketWatch:
    """Watches of three objects, each in a thread, or all in one; they end soon after it is closed.

    Args:
        place: Where the tickets are.
        sleeper: Whom to wake.
        before: A ticket before its own.
        pool: As it was seen.
        version: Of the list that has shown that.

    Attributes:
        before: As given.
        is_over: A watch has ended, and the sleeper isn't woken any more.
    """

    def __init__(
        self,
        place: Place,
        sleeper: Sleeper,
        before: TicketObject,
        pool: PoolObject,
        version: int,
    ) -> None:
        clock = place.clock
        self.before = before
        self.is_over = False
        self._place = place
        self._sleeper = sleeper
        self._clock = clock
        self._heard_at = clock.elapsed()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._watches: list[Watch[Happened]] = []  # under the lock
        self._look_at = clock.elapsed() + _LONGEST_SECONDS
        self._pool = pool
        names = (before.id.name, sleeper.ticket.object_name, pool.id.name)
        alone: list[tuple[str, ...]] = [(name,) for name in names]
        for each in [names] if place.objects.unites else alone:
            start_thread("ticket-watch", partial(self._run, each, version), failed=self._end)

    @property
    def silent_at(self) -> float:
        """When who is before it has been silent for so long that one has to look, elapsed clock."""
        if self._place.objects.ends:
            return self._look_at
        return min(self._heard_at + self.before.ttl_seconds / 2, self._look_at)

    def look(self) -> None:
        """Make the sleeper look; the ticket before it has its time from now on again."""
        self._heard_at = self._clock.elapsed()
        self._look_at = self._heard_at + _LONGEST_SECONDS
        self._wake()

    def close(self) -> None:
        """End the threads, and their watches."""
        with self._lock:
            self._closing.set()
            watches = list(self._watches)
        for watch in watches:
            watch.cut()

    # The threads

    def _run(self, names: tuple[str, ...], version: int) -> None:
        watch = self._place.objects.watch(Selection(names=names), version)
        with self._lock:
            if self._closing.is_set():
                return
            self._watches.append(watch)
        try:
            with watch as events:
                self._sleeper.ticket.note_watched()
                for happened in events:
                    self._take(happened)
        except WatchEnded as ended:
            self._closing.wait(ended.retry_after_seconds or _LEAST_SECONDS)
        except LeaseError as reason:
            self._sleeper.ticket.note_unwatched(reason)
            self._wake()  # to find out what else it may not
            self._closing.wait(_ASK_AGAIN_SECONDS)
        self._end()

    def _end(self) -> None:
        if not self._closing.is_set():  # it may have missed something, and lists again
            self.is_over = True
            self._wake()

    def _take(self, happened: Happened) -> None:
        name = happened.id.name
        if happened.what == "nothing":
            return
        self._sleeper.ticket.note_heard(happened.id.version)
        is_own, found = name == self._sleeper.ticket.object_name, happened.object
        if happened.what == "over":
            self._wake()
        elif happened.what == "gone":
            if is_own:
                self._sleeper.ticket.note_gone()
            self._wake()
        elif name == self._pool.id.name:
            self._take_pool(found)
        elif not is_own:
            self._heard_at = self._clock.elapsed()
            self._place.observed.note(found)
            is_same = isinstance(found, TicketObject) and _rank(found) == _rank(self.before)
            if not is_same:
                self._wake()

    def _take_pool(self, found: object) -> None:
        if not isinstance(found, PoolObject) or _grants(found) != _grants(self._pool):
            self._wake()
        if isinstance(found, PoolObject):
            self._pool = found

    def _wake(self) -> None:
        if not self._closing.is_set():
            self._sleeper.wake()


def _grants(pool: PoolObject) -> tuple[object, ...]:
    return pool.settings, pool.state, pool.changed


def _rank(ticket: TicketObject) -> tuple[int, int, int]:
    return ticket.priority, ticket.counts_as, ticket.place
