"""The session that all waiters of a process share.

Threads, because who waits sleeps in poll(2), for hours, and may be busy elsewhere: the life of its
ticket must not depend on it. One renews the tickets, each at a third of its ttl, and looks at the
time when something that was seen may be over; for each pool one follows what happens there.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import renewed_ticket
from leasectl.engines.cluster.objects import Change, TicketObject
from leasectl.engines.cluster.ticket import OwnTicket
from leasectl.engines.cluster.view import PoolView
from leasectl.errors import AccessRefused, LeaseError
from leasectl.system.clock import earliest
from leasectl.system.threads import start_thread
from leasectl.system.wakeup import Wakeup

if TYPE_CHECKING:  # most have their turn without a wait
    from leasectl.engines.cluster.context import Context
    from leasectl.engines.cluster.waiter import ClusterWaiter
    from leasectl.engines.cluster.watches import PoolWatch, TicketWatch

_LONGEST_ANSWER_SECONDS = 5.0
# Who was the last to wait has got its grant and goes on; it may be back soon.
_LINGER_SECONDS = 0.2
# So is its watch: who comes back then needs no lists.
_KEPT_SECONDS = 1.0
# Somebody edits a ticket at the very time that it is renewed, again and again.
_MOST_TRIES = 3


class WaitSession:
    """The threads start with the first who listens and end soon after the last has left.

    Args:
        context: Of the place of the pools.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._clock = context.clock
        self._lock = threading.Lock()  # taken before that of a pool_watch, never after
        # Under it:
        self._watches: dict[str, PoolWatch] = {}
        self._far: dict[ClusterWaiter, TicketWatch] = {}  # those who follow no pool
        self._due: dict[ClusterWaiter, float] = {}  # when its ticket is renewed next
        self._unused: dict[str, float] = {}  # by pool: when its watch ends that nobody needs now
        self._wakeup: Wakeup | None = None  # of the thread, while it runs

    def listen(
        self, sleeper: ClusterWaiter, view: PoolView, *, before: TicketObject | None = None
    ) -> None:
        """Wake a sleeper when its verdict changes, and keep its ticket alive until then.

        From here until it leaves.

        Args:
            sleeper: Who.
            view: What it has seen.
            before: If it is far behind: a ticket before its own, which is enough to follow.
        """
        with self._lock:
            if self._wakeup is None:
                self._start()
            is_alone = not any(
                each.ticket.request.type == view.pool_type for each in self._due if each != sleeper
            )
            aging_seconds = view.pool.settings.aging_seconds if view.pool is not None else None
            self._due.setdefault(sleeper, _due(sleeper.ticket, aging_seconds))
            if before is not None and is_alone:  # or one watch does for all of the process
                self._follow_tickets(sleeper, view, before)
            else:
                self._follow_pool(sleeper, view)
        self._look()

    def _follow_pool(self, sleeper: ClusterWaiter, view: PoolView) -> None:
        """Wake a sleeper by what happens in its pool; with the lock."""
        far = self._far.pop(sleeper, None)
        if far is not None:
            far.close()
        pool_watch = self._watches.get(view.pool_type)
        self._unused.pop(view.pool_type, None)
        if pool_watch is None:
            from leasectl.engines.cluster.watches import PoolWatch

            pool_watch = PoolWatch(self._context, view.copy(), self._look)
            self._watches[view.pool_type] = pool_watch
            pool_watch.start()
        else:
            pool_watch.fill(view)
        pool_watch.add(sleeper)

    def _follow_tickets(self, sleeper: ClusterWaiter, view: PoolView, before: TicketObject) -> None:
        """Wake a sleeper by what becomes of two tickets; with the lock."""
        self._leave_pool(sleeper, keeps=False)
        far = self._far.get(sleeper)
        if far is not None and (far.is_over or far.before.id.name != before.id.name):
            far.close()
            far = None
        if far is None:
            from leasectl.engines.cluster.watches import TicketWatch

            assert view.pool is not None, "who is behind somebody is in a pool"
            self._far[sleeper] = TicketWatch(
                self._context, sleeper, before, view.pool, view.version
            )

    def _leave_pool(self, sleeper: ClusterWaiter, *, keeps: bool = True) -> None:
        pool_type = sleeper.ticket.request.type
        pool_watch = self._watches.get(pool_type)
        if pool_watch is not None and pool_watch.remove(sleeper):
            if keeps:
                self._unused.setdefault(pool_type, self._clock.elapsed() + _KEPT_SECONDS)
            else:  # all that happens there until its turn is near isn't its business
                self._unused[pool_type] = 0.0
            self._look()

    def leave(self, sleeper: ClusterWaiter) -> None:
        """Stop waking a sleeper and renewing its ticket."""
        with self._lock:
            if self._due.pop(sleeper, None) is None:
                return
            self._leave_pool(sleeper)
            far = self._far.pop(sleeper, None)
            if far is not None:
                far.close()

    def pool_watch(self, pool_type: str) -> PoolWatch | None:
        """Return the watch of a pool in this process, if there is one."""
        return self._watches.get(pool_type)

    def look_at_time(self) -> None:
        """The clock has jumped: have the thread look at it, and all who wait."""
        with self._lock:
            for sleeper in self._due:
                sleeper.wake()
        self._look()

    def _look(self) -> None:
        """Make the thread look what is due; any lock may be held."""
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup.set()

    # The thread

    def _start(self) -> None:
        self._wakeup = Wakeup()
        start_thread("session", partial(self._run, self._wakeup), repeats=True)

    def _run(self, wakeup: Wakeup) -> None:
        while True:
            pause = self._do_what_is_due()
            if pause is not None:
                wakeup.wait(pause)
                wakeup.clear()
            elif not wakeup.wait(_LINGER_SECONDS):
                with self._lock:
                    if not self._due and not self._unused:
                        self._wakeup = None
                        break
            else:
                wakeup.clear()
        wakeup.close()

    def _do_what_is_due(self) -> float | None:
        """Do it; return the seconds until more is due, or None without waiters."""
        with self._lock:
            watches = dict(self._watches)
            due, silent = dict(self._due), list(self._far.values())
        for pool_type, pool_watch in watches.items():
            if pool_watch.take_new_settings():  # perhaps they count with something else now
                due.update((each, 0.0) for each in due if each.ticket.request.type == pool_type)
            if pool_watch.next_at is not None and pool_watch.next_at <= self._clock.elapsed():
                pool_watch.look_at_time()
        self._close_unused()
        for far in silent:
            if far.silent_at <= self._clock.elapsed():
                far.look()
        for sleeper, at in due.items():
            if at <= self._clock.elapsed():
                self._renew(sleeper)
        with self._lock:
            next_at = earliest(
                *self._due.values(),
                *self._unused.values(),
                *(each.next_at for each in self._watches.values()),
                *(each.silent_at for each in self._far.values()),
            )
        return None if next_at is None else max(0.0, next_at - self._clock.elapsed())

    def _close_unused(self) -> None:
        with self._lock:
            for pool_type, at in list(self._unused.items()):
                if at <= self._clock.elapsed():
                    del self._unused[pool_type]
                    self._watches.pop(pool_type).close()

    def _renew(self, sleeper: ClusterWaiter) -> None:
        """Renew a ticket, with the priority that it has by now."""
        ticket = sleeper.ticket
        patience = _answer_seconds(ticket)
        due, pool_watch = None, self.pool_watch(ticket.request.type)
        if pool_watch is not None:
            pool_watch.cut_if_deaf(self._clock.elapsed())
        try:
            with self._objects.limited(self._clock.elapsed() + patience):
                is_there = self._write(ticket, pool_watch)
        except LeaseError as error:
            due = self._clock.elapsed() + patience / 5
            was_refused = ticket.refusal is not None
            ticket.refusal = error if isinstance(error, AccessRefused) else None
            if ticket.is_overdue or (ticket.refusal is not None and not was_refused):
                sleeper.wake()
        else:
            ticket.refusal = None
            if not is_there:
                due = self._clock.elapsed() + ticket.ttl_seconds
                ticket.is_gone = True
                sleeper.wake()
        aging_seconds = None if pool_watch is None else pool_watch.aging_seconds
        with self._lock:
            if sleeper in self._due:
                self._due[sleeper] = _due(ticket, aging_seconds) if due is None else due

    def _write(self, ticket: OwnTicket, pool_watch: PoolWatch | None) -> bool:
        """Renew a ticket; returns whether it was there."""
        for _ in range(_MOST_TRIES):
            seen, sent_at = ticket.object, self._clock.elapsed()
            assert seen is not None, "who listens has put its ticket"
            if self._objects.ends:
                if not self._objects.keep_alive(seen):
                    return False
                ticket.note(seen, sent_at=sent_at)
            counts_as = seen.counts_as
            if pool_watch is not None and pool_watch.aging_seconds is not None:
                counts_as = ticket.counts_as(pool_watch.aging_seconds)
            if self._objects.ends and counts_as == seen.counts_as:
                return True
            new = renewed_ticket(seen, wall=self._clock.wall(), counts_as=counts_as)
            written = self._objects.write(Change(seen, new))
            if written.object is not None:
                ticket.note(written.object, sent_at=sent_at)
                if pool_watch is not None:
                    # It tells of that well before the next renewal, which checks that.
                    by = self._clock.elapsed() + _answer_seconds(ticket)
                    pool_watch.expect(written.object.id.version, by)
                    if counts_as != seen.counts_as:
                        pool_watch.look_at_time()  # the watch may have told of it before
                return True
            if written.found is None or written.found.id.uid != seen.id.uid:
                return False
            ticket.note(written.found)  # somebody has edited it
        return True


def _due(ticket: OwnTicket, aging_seconds: float | None) -> float:
    """When it is to be renewed next, on the elapsed clock."""
    rises_at = None if aging_seconds is None else ticket.rises_at(aging_seconds)
    return min(ticket.sent_at + ticket.ttl_seconds / 3, rises_at or math.inf)


def _answer_seconds(ticket: OwnTicket) -> float:
    """How long the answer to a renewal may take, and what tells of it, well before the next one."""
    return min(ticket.ttl_seconds / 6, _LONGEST_ANSWER_SECONDS)
