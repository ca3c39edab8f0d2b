"""The keep-alives of all waiters of a process: one thread, one request after the other.

Each etcd lease is kept alive at a third of its ttl, at the member that the watches listen to. An
answer that doesn't come in time, or shows that the member lags, means that the member is to be left
by both. Who else could tell that it lags is asked every other time instead of it: that costs no
request, nor time that the ticket hasn't got, for if there is no good answer the member is asked
with what is left.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections import Counter
from typing import Protocol

import httpx

from leasectl.engines.etcd.gateway.gateway import Gateway, LeaseGone, NoAnswer
from leasectl.engines.etcd.waiting.lag import LagDetector
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.errors import LeaseError
from leasectl.system.clock import Clock

_LONGEST_ANSWER_SECONDS = 5.0
_LINGER_SECONDS = 0.2
# A member learns what was written with the leader's next message, 0.1 s later if all is well.
_LONGEST_SLACK_SECONDS = 1.0


class _Lagging(NoAnswer):
    """It did answer, but knows less than another did before."""


class Kept(Protocol):
    """Whose etcd lease is kept alive.

    Attributes:
        lease: Its id.
        ttl_seconds: Of the lease.
        sent_at: When the last successful keep-alive was sent, on the elapsed clock.
    """

    etcd_lease_id: int
    ttl_seconds: int
    sent_at: float

    @property
    def is_overdue(self) -> bool: ...

    def wake(self) -> None:
        """Have it find out for itself what became of its lease."""


class KeepAlives:
    """The thread, from its start to its end, which comes when nobody has been left for a while.

    Not at once: to end it, and the watches with it, takes as long as half a request, and who is
    last to wait has got its grant and goes on. It may be back soon, too.

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
        self._kept: set[Kept] = set()
        self._ttls: Counter[int] = Counter()
        self._due: list[tuple[float, int, Kept]] = []  # a heap, with some that have left since
        self._serial = itertools.count()  # among those that are due at once

    def start(self) -> None:
        threading.Thread(target=self._run, name="leasectl_keep_alive", daemon=True).start()

    def add(self, kept: Kept) -> bool:
        """Keep somebody's lease alive from here on, unless the thread has come to its end."""
        with self._changed:
            if not self._is_over:
                self._kept.add(kept)
                self._ttls[kept.ttl_seconds] += 1
                self._push(kept.sent_at + kept.ttl_seconds / 3, kept)
            return not self._is_over

    def remove(self, kept: Kept) -> None:
        with self._changed:
            self._kept.remove(kept)
            self._ttls -= Counter((kept.ttl_seconds,))  # and what is zero goes
            if not self._kept:
                self._changed.notify()

    def _push(self, due: float, kept: Kept) -> None:
        heapq.heappush(self._due, (due, next(self._serial), kept))
        if self._due[0][2] is kept:
            self._changed.notify()

    # The thread

    def _run(self) -> None:
        with contextlib.ExitStack() as open_client:
            client = None
            while True:
                with self._changed:
                    kept = self._next()
                    if kept is None:
                        break
                    # For all of them: who has the shortest ttl must not wait for another's answer.
                    ttl = min(self._ttls)
                if client is None:  # most processes are gone before the first is due
                    client = open_client.enter_context(self._gateway.client())
                has_answer = self._beat(client, kept, ttl)
                pause = kept.ttl_seconds / 3 if has_answer else _patience(ttl) / 10
                with self._changed:
                    self._push(self._clock.elapsed() + pause, kept)
                    if not has_answer:
                        self._changed.wait_for(lambda: not self._kept, pause)
        self._watch.close()

    def _next(self) -> Kept | None:
        """Wait for the next that is due; None at the end. With the lock held."""
        while self._kept or self._changed.wait_for(lambda: self._kept, _LINGER_SECONDS):
            while self._due and self._due[0][2] not in self._kept:
                heapq.heappop(self._due)
            pause = self._due[0][0] - self._clock.elapsed() if self._due else None
            if pause is not None and pause <= 0:
                return heapq.heappop(self._due)[2]
            self._changed.wait(pause)
        self._is_over = True
        return None

    def _beat(self, client: httpx.Client, kept: Kept, ttl: int) -> bool:
        """One keep-alive at the member, or a witness instead; whether there was an answer."""
        now, member, patience = self._clock.elapsed(), self._watch.member, _patience(ttl)
        seconds = patience
        witness = self._detector.choose(member, now=now, slack_seconds=_slack(ttl))
        if witness is not None:
            with contextlib.suppress(NoAnswer, LeaseError, LeaseGone):
                if self._ask(client, witness, kept, ttl, patience / 4):
                    return True
            # All that says nothing of the member.
            self._detector.rest(witness, now + 2 * ttl)
            seconds = max(now + patience - self._clock.elapsed(), patience / 2)
        try:
            if not self._ask(client, member, kept, ttl, seconds):
                kept.wake()
        except NoAnswer as reason:
            if isinstance(reason, _Lagging):
                self._detector.begin_anew(now + ttl / 3)
                self._gateway.leave(member)  # it wouldn't answer who is woken
            self._watch.leave(member)
            self._wake_overdue()
            return False
        except (LeaseError, LeaseGone):
            kept.wake()  # it asks for itself, and gets the same answer
        return True

    def _ask(self, client: httpx.Client, member: int, kept: Kept, ttl: int, seconds: float) -> bool:
        """Keep a lease alive at one member; returns whether it was there.

        Raises:
            NoAnswer: None that counts. Who lags may believe that it still leads, and renew nothing.
        """
        asked_at = self._clock.elapsed()
        beat = self._gateway.keep_alive_at(client, member, kept.etcd_lease_id, seconds)
        if self._detector.lags(member, beat.revision, asked_at=asked_at, slack_seconds=_slack(ttl)):
            raise _Lagging("it lags behind another member")
        if beat.is_alive or member == self._watch.member:  # or it may be of another cluster
            self._detector.note(member, beat.revision, asked_at=asked_at, now=self._clock.elapsed())
        if beat.is_alive:
            kept.sent_at = asked_at
        return beat.is_alive

    def _wake_overdue(self) -> None:
        """All of them: while nobody answers, it would take long until each had its turn."""
        with self._changed:
            overdue = [kept for kept in self._kept if kept.is_overdue]
        for kept in overdue:
            kept.wake()


def _patience(ttl_seconds: float) -> float:
    """For how long one of them waits for its answer."""
    return min(ttl_seconds / 6, _LONGEST_ANSWER_SECONDS)


def _slack(ttl_seconds: float) -> float:
    """By how much a member may be later than another and doesn't lag."""
    return min(ttl_seconds / 6, _LONGEST_SLACK_SECONDS)
