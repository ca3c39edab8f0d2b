"""Send the keep-alives of all waiters, from one thread.

Each ticket's etcd lease is kept alive at a third of its ttl, at the member that the watches listen
to. An answer that doesn't come in time, or shows that the member lags, means that the member is to
be left by both. Another member, to compare with, is asked every other time instead of it: that
costs no request, nor time that the ticket hasn't got, for if there is no good answer the member is
asked with what is left.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import threading
from collections import Counter
from typing import Protocol

from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.queues.ticket import EtcdTicket
from leasectl.engines.etcd.waiting.lag import LagDetector
from leasectl.engines.etcd.waiting.listeners import Listener
from leasectl.engines.etcd.waiting.targets import WatchTarget
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.errors import LeaseError
from leasectl.http.exchange import Client
from leasectl.http.no_answer import NoAnswer
from leasectl.system.clock import Clock
from leasectl.system.threads import start_thread

_LONGEST_ANSWER_SECONDS = 5.0
_LINGER_SECONDS = 0.2
# Most waits that are going to be short are over by then.
_COMPLETE_SECONDS = 0.2
# A member learns what was written with the leader's next message, 0.1 s later if all is well.
_LONGEST_SLACK_SECONDS = 1.0


class _Lagging(NoAnswer):
    """It did answer, but knows less than another did before."""


class Sleeper(Listener, Protocol):
    """Who has a ticket and sleeps."""

    @property
    def ticket(self) -> EtcdTicket: ...


class KeepAlives:
    """The thread, from its start to its end, which comes when nobody has been left for a while.

    Not at once: to end it, and the watches with it, takes as long as half a request, and who is
    last to wait has got its grant and goes on. It may be back soon, too. And the thread is woken
    only for what it wouldn't be in time for, as that takes time from who comes or goes.

    Args:
        gateway: The cluster.
        watch: Which member to ask, and whom to tell that it doesn't answer. It ends as well.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, watch: EtcdWatch, clock: Clock) -> None:
        self._gateway = gateway
        self._watch = watch
        self._clock = clock
        self._detector = LagDetector(len(gateway.endpoints))  # of the thread
        self._changed = threading.Condition()
        # Under the lock of _changed:
        self._is_over = False
        self._waiters: set[Sleeper] = set()
        self._ttls: Counter[int] = Counter()
        self._due: list[tuple[float, int, Sleeper]] = []  # a heap, with some that have left since
        self._to_complete: list[tuple[float, int, Sleeper, WatchTarget]] = []  # likewise
        self._serial = itertools.count()  # among those that are due at once
        self._left_at = clock.elapsed()  # when the last of them left
        self._sleeps_until = 0.0  # when the thread wakes by itself, on the elapsed clock

    def start(self) -> None:
        """Start the thread."""
        start_thread("keep-alives", self._run, repeats=True)

    def add(self, waiter: Sleeper) -> bool:
        """Keep a waiter's ticket alive from here on.

        Returns:
            Whether that is so; it isn't when the thread has come to its end.
        """
        with self._changed:
            if not self._is_over:
                ticket = waiter.ticket
                self._waiters.add(waiter)
                self._ttls[ticket.ttl_seconds] += 1
                self._push(ticket.sent_at + ticket.ttl_seconds / 3, waiter)
            return not self._is_over

    def complete_soon(self, sleeper: Sleeper, target: WatchTarget) -> None:
        """Have the watch listen to all of a target that it only listens to a part of yet."""
        with self._changed:
            due = self._clock.elapsed() + _COMPLETE_SECONDS
            heapq.heappush(self._to_complete, (due, next(self._serial), sleeper, target))
            if due < self._sleeps_until:
                self._changed.notify()

    def remove(self, waiter: Sleeper) -> None:
        """Keep its ticket alive no longer."""
        with self._changed:
            self._waiters.remove(waiter)
            self._ttls -= Counter((waiter.ticket.ttl_seconds,))  # and what is zero goes
            if not self._waiters:
                self._left_at = self._clock.elapsed()
                if self._sleeps_until > self._left_at + _LINGER_SECONDS:
                    self._changed.notify()

    def _push(self, due: float, waiter: Sleeper) -> None:
        heapq.heappush(self._due, (due, next(self._serial), waiter))
        if due < self._sleeps_until:
            self._changed.notify()

    # The thread

    def _run(self) -> None:
        with contextlib.ExitStack() as open_client:
            client = None
            while True:
                with self._changed:
                    waiter = self._next()
                    if waiter is None:
                        break
                    # For all of them: who has the shortest ttl must not wait for another's answer.
                    ttl = min(self._ttls)
                if client is None:  # most processes are gone before the first is due
                    client = open_client.enter_context(self._gateway.client())
                has_answer = False
                try:
                    has_answer = self._keep_alive(client, waiter, ttl)
                finally:  # whatever happens, it stays among those that are due
                    pause = waiter.ticket.ttl_seconds / 3 if has_answer else _patience(ttl) / 10
                    with self._changed:
                        self._push(self._clock.elapsed() + pause, waiter)
                with self._changed:
                    if not has_answer:
                        self._sleeps_until = math.inf
                        self._changed.wait_for(lambda: not self._waiters, pause)
                        self._sleeps_until = 0.0
        self._watch.close()

    def _next(self) -> Sleeper | None:
        """Wait for the next that is due; None at the end. With the lock held."""
        while True:
            while self._due and self._due[0][2] not in self._waiters:
                heapq.heappop(self._due)
            # Each who waits is due at some time.
            until = self._due[0][0] if self._due else self._left_at + _LINGER_SECONDS
            until = min(until, self._complete())
            pause = until - self._clock.elapsed()
            if pause <= 0:
                break
            self._sleeps_until = until
            self._changed.wait(pause)
            self._sleeps_until = 0.0
        if self._due:
            return heapq.heappop(self._due)[2]
        self._is_over = True
        return None

    def _complete(self) -> float:
        """Have the watch listen to what it was to a little later, where it is time; returns when
        that will be for the next. With the lock held.
        """
        while self._to_complete:
            due, _, sleeper, target = self._to_complete[0]
            if sleeper in self._waiters:
                if due > self._clock.elapsed():
                    return due
                self._watch.complete(sleeper, target)
            heapq.heappop(self._to_complete)
        return math.inf

    def _keep_alive(self, client: Client, waiter: Sleeper, ttl: int) -> bool:
        """One keep-alive at the member, or at another to compare; whether there was an answer."""
        now, member, patience = self._clock.elapsed(), self._watch.member, _patience(ttl)
        seconds = patience
        other = self._detector.choose_other(member, now=now, slack_seconds=_slack(ttl))
        if other is not None:
            with contextlib.suppress(NoAnswer, LeaseError, EtcdLeaseGone):
                if self._ask(client, other, waiter.ticket, ttl, patience / 4):
                    return True
            # All that says nothing of the member.
            self._detector.rest(other, now + 2 * ttl)
            seconds = max(now + patience - self._clock.elapsed(), patience / 2)
        try:
            if not self._ask(client, member, waiter.ticket, ttl, seconds):
                waiter.wake()
        except NoAnswer as reason:
            if isinstance(reason, _Lagging):
                self._detector.begin_anew(now + ttl / 3)
                self._gateway.leave(member)  # it wouldn't answer who is woken
            self._watch.leave(member)
            self._wake_overdue()
            return False
        except (LeaseError, EtcdLeaseGone):
            waiter.wake()  # it asks for itself, and gets the same answer
        return True

    def _ask(
        self, client: Client, member: int, ticket: EtcdTicket, ttl: int, seconds: float
    ) -> bool:
        """Keep a ticket alive at one member; returns whether its etcd lease was there.

        Raises:
            NoAnswer: None that counts. Who lags may believe that it still leads, and renew nothing.
        """
        asked_at = self._clock.elapsed()
        answer = self._gateway.keep_alive_at(client, member, ticket.etcd_lease_id, seconds)
        revision, slack_seconds = answer.revision, _slack(ttl)
        if self._detector.lags(member, revision, asked_at=asked_at, slack_seconds=slack_seconds):
            raise _Lagging("it lags behind another member")
        if answer.is_alive or member == self._watch.member:  # or it may be of another cluster
            self._detector.note(member, revision, asked_at=asked_at, now=self._clock.elapsed())
        if answer.is_alive:
            ticket.note_sent(asked_at)
        return answer.is_alive

    def _wake_overdue(self) -> None:
        """All of them: while nobody answers, it would take long until each had its turn."""
        with self._changed:
            overdue = [waiter for waiter in self._waiters if waiter.ticket.is_overdue]
        for waiter in overdue:
            waiter.wake()


def _patience(ttl_seconds: float) -> float:
    """For how long one of them waits for its answer."""
    return min(ttl_seconds / 6, _LONGEST_ANSWER_SECONDS)


def _slack(ttl_seconds: float) -> float:
    """By how much a member may be later than another and doesn't lag."""
    return min(ttl_seconds / 6, _LONGEST_SLACK_SECONDS)
