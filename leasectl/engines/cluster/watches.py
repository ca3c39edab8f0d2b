"""Watches of pools in threads, for the waiters of a process.

`Following` is such a thread: it follows one watch after the other and wakes those that wait for it.
Its owner decides what an event means, and where the next watch begins.

`PoolWatch` follows a pool and keeps a view of it. However a watch ends, the thread lists the pool
and watches from there. While that fails, the waiters are told, so that each asks for itself as long
as it may. A dead connection that nobody closed ends no watch for 75 s, which is longer than most
ttls. But each waiter writes to its own ticket now and then, and a watch that works tells of that.
If it doesn't, the watch is cut, without a request that tests it.

`TicketWatch` follows three objects only, for waiters far behind in the queue. The first is a ticket
so many places ahead that the waiter is one of the few next when it has gone. From then on it
follows the pool, long before its turn. A server finds those who watch an object by its name at
once, but has to ask those who watch by a label one by one. So with a thousand waiters a write costs
what it costs with one, and only the few next hear of other objects. What the others know is from
their last list. If the ticket ahead says nothing for half of its ttl, they list again, and find all
dead tickets at once. The pool's own object is written when the pool can meet less than before, or
grants in another way. If the writer was killed right before that, they look after ten minutes.

A waiter that is woken by an event looks at a view that isn't older. Otherwise it might read the
view of a watch that hasn't got the event yet, and follow a ticket that has gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from leasectl.engines.cluster.objects import (
    Found,
    Happened,
    PoolObject,
    ResourceObject,
    Selection,
    TicketObject,
    Watch,
)
from leasectl.engines.cluster.observed import Lookout
from leasectl.engines.cluster.ticket import OwnTicket
from leasectl.engines.cluster.turns import Turn, turn_of
from leasectl.engines.cluster.view import Over, PoolView
from leasectl.engines.facts import PoolSettings
from leasectl.errors import LeaseError
from leasectl.http.no_answer import WatchEnded
from leasectl.system.threads import start_thread
from leasectl.system.wakeup import Wakeup

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context
    from leasectl.engines.cluster.waiter import ClusterWaiter

Event = TypeVar("Event")

# Before the next watch, so that watches that end at once cause no spin.
_LEAST_SECONDS = 0.2
# After a failure: for hints only, and for those who wait.
_ASK_LATER_SECONDS = 5.0
_ASK_AGAIN_SECONDS = 1.0
# There is no pool; the ticket has gone; nothing there could meet it; a better one is before it; it
# is its turn, and it waits for that in another pool, or there is too little; or enough.
Standing = Literal["no pool", "gone", "unmet", "behind", "parked", "short", "enough"]
# After this, a waiter that is far behind looks at the pool all the same.
_LONGEST_SECONDS = 600.0


class Following:
    """The thread, from `start` on; it ends soon after it is closed.

    Args:
        follow: Called in it again and again: follows a watch by `take_all` until that ends.
        again: Called in it when it is time for another, after one that ended or wasn't to be had.
        lost: Called in it with why a watch isn't to be had; with None after an error of the thread.
        pause_seconds: The pause after that.
    """

    def __init__(
        self,
        follow: Callable[[], object],
        again: Callable[[], object] = lambda: None,
        *,
        lost: Callable[[LeaseError | None], object] = lambda reason: None,
        pause_seconds: float = _ASK_LATER_SECONDS,
    ) -> None:
        self._follow = follow
        self._again = again
        self._lost = lost
        self._pause_seconds = pause_seconds
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch[object] | None = None  # under the lock

    def start(self, name: str) -> None:
        """Start it, under a name of its own."""
        start_thread(name, self._run, failed=self._fail, repeats=True)

    @property
    def is_closed(self) -> bool:
        """Whether it is to end."""
        return self._closed.is_set()

    def cut(self) -> None:
        """End its watch; it begins another."""
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.cut()

    def close(self) -> None:
        """End it, and its watch."""
        self._closed.set()
        self.cut()

    # In the thread

    def take_all(
        self,
        watch: Watch[Event],
        take: Callable[[Event], object],
        *,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        """Hand over what a watch tells, until it ends.

        Args:
            watch: The watch.
            take: Called with each event.
            begun: Called when it has begun.

        Raises:
            WatchEnded, LeaseError: As `Watch` has it.
        """
        with self._lock:
            self._watch = watch
        if self.is_closed:
            return
        with watch as events:
            begun()
            for event in events:
                take(event)

    def _fail(self) -> None:
        if not self.is_closed:
            self._lost(None)
            self._again()

    def _run(self) -> None:
        while not self.is_closed:
            try:
                self._follow()
                continue
            except WatchEnded as ended:
                self._closed.wait(ended.retry_after_seconds or _LEAST_SECONDS)
            except LeaseError as reason:
                self._lost(reason)
                self._closed.wait(self._pause_seconds)
            if not self.is_closed:
                self._again()


class Follower:
    """Has a thread that follows watches, and a descriptor that says that something has come."""

    _following: Following

    def __init__(self) -> None:
        self._wakeup = Wakeup()

    @property
    def fd(self) -> int:
        return self._wakeup.fd

    def close(self) -> None:
        self._following.close()
        self._wakeup.close()


class Verdict(NamedTuple):
    """How it stands; as long as it is the same, a waiter sleeps on.

    Args:
        standing: In a word.
        settings: Of the pool, where there is enough: its pace may keep it waiting.
        last_grant: Of the pool, where there is enough.
        coming: Where there is too little: what is different when more is to move to the pool.
    """

    standing: Standing
    settings: PoolSettings | None = None
    last_grant: str = ""
    coming: str = ""


def verdict_of(
    own: OwnTicket, view: PoolView, over: Over, turn: Turn | None = None
) -> Verdict | None:
    """Return how it stands for a ticket; None where what was seen is older than that.

    Args:
        own: Which.
        view: What was seen of its pool.
        over: What is over in it.
        turn: As `turn_of` has told of that; None to ask it.
    """
    ticket = own.object
    if ticket is not None and view.version < ticket.place:
        return None
    if not view.is_there:
        return Verdict("no pool")
    if ticket is not None and own.object_name not in view.tickets:
        return Verdict("gone")
    turn = turn or turn_of(own.as_seen(view), view, over)
    if not turn.is_met:
        return Verdict("unmet", coming=_coming(view))
    if turn.before is not None:
        return Verdict("behind")
    if own.is_parked:
        return Verdict("parked")
    if len(turn.free) < own.request.count:
        return Verdict("short", coming=_coming(view))
    assert view.pool is not None
    return Verdict("enough", view.pool.settings, view.pool.last_grant)


def _coming(view: PoolView) -> str:
    return view.pool.changed if view.pool is not None and view.pool.coming else ""


class PoolWatch:
    """The thread of one pool, until it is closed.

    Args:
        context: Of the place of the pool.
        view: What was seen of it first.
        due_changed: Called when there may be something to do sooner.
    """

    def __init__(self, context: Context, view: PoolView, due_changed: Callable[[], object]) -> None:
        self._context = context
        self._observed = context.observed
        self._due_changed = due_changed
        self._following = Following(
            self._follow, self._list, lost=self._lose, pause_seconds=_ASK_AGAIN_SECONDS
        )
        self._changed = threading.Condition()
        # Under the lock of _changed:
        self._view = view
        self._lookout = Lookout(self._observed, view)
        self._is_current = True
        self._has_begun = False
        self._sleepers: set[ClusterWaiter] = set()
        self._next_at: float | None = None
        self._has_new_settings = False
        self._version_heard = view.version  # of what its watch told of last, or begins with
        self._expected: tuple[int, float] | None = None  # a version, by when on the elapsed clock

    def start(self) -> None:
        """Start the thread."""
        self._following.start("pool-watch")

    @property
    def next_at(self) -> float | None:
        """When something is over next, unless it is renewed, on the elapsed clock; None: never."""
        return self._next_at

    @property
    def aging_seconds(self) -> float | None:
        """The pool's aging; None while that isn't kept up to date."""
        with self._changed:
            pool = self._view.pool if self._is_current else None
            return None if pool is None else pool.settings.aging_seconds

    def view(self) -> PoolView | None:
        """A copy of what was seen so far; None while that isn't kept up to date."""
        with self._changed:
            return self._view.copy() if self._is_current else None

    def view_since(self, version: int, seconds: float) -> PoolView | None:
        """The same, of a time that isn't before that version; None where it isn't heard of soon.

        Args:
            version: Of a write.
            seconds: How long it is waited for.
        """
        with self._changed:
            is_there = self._changed.wait_for(
                lambda: not self._is_current or self._view.version >= version, seconds
            )
            return self._view.copy() if is_there and self._is_current else None

    def fill(self, view: PoolView) -> None:
        """Take over another view, if that is newer."""
        with self._changed:
            if view.version > self._view.version:
                self._take_over(view)

    def expect(self, version: int, by: float) -> None:
        """Its watch is to tell of a write, or of a later one.

        Args:
            version: Of the write.
            by: Until when on the elapsed clock; if it is still to tell of one before, that counts.
        """
        with self._changed:
            if self._expected is None and self._version_heard < version:
                self._expected = (version, by)

    def cut_if_deaf(self, now: float) -> None:
        """Begin another watch if this one hasn't told of what it was to tell of by now."""
        with self._changed:
            if self._expected is None or now < self._expected[1]:
                return
            self._expected = None
        self._following.cut()

    def add(self, sleeper: ClusterWaiter) -> None:
        """Wake a sleeper whenever its verdict changes, from now on."""
        with self._changed:
            if sleeper not in self._sleepers:
                self._sleepers.add(sleeper)
                if self._has_begun:
                    sleeper.ticket.note_watched()
                self._judge()

    def remove(self, sleeper: ClusterWaiter) -> bool:
        """Stop waking a sleeper; return whether no other is left."""
        with self._changed:
            self._sleepers.discard(sleeper)
            return not self._sleepers

    def look_at_time(self) -> None:
        """Something may be over by now."""
        with self._changed:
            self._judge()

    def take_new_settings(self) -> bool:
        """Tell whether the pool grants otherwise than when this was asked last."""
        with self._changed:
            is_so, self._has_new_settings = self._has_new_settings, False
        return is_so

    def close(self) -> None:
        """End the thread, and its watch."""
        self._following.close()

    # With the lock

    def _judge(self) -> None:
        self._changed.notify_all()
        if not self._sleepers:
            self._next_at = None
            return
        looked = self._lookout.look()
        is_sooner = self._next_at is None or (looked.next_at or self._next_at) < self._next_at
        self._next_at = looked.next_at
        for sleeper in self._sleepers:
            verdict = verdict_of(sleeper.ticket, self._view, looked.over)
            if verdict is not None and verdict != sleeper.verdict:
                sleeper.verdict = verdict
                sleeper.wake()
        if is_sooner and looked.next_at is not None:
            self._due_changed()

    def _take_over(self, view: PoolView) -> None:
        self._view = view.copy()
        self._lookout = Lookout(self._observed, self._view)
        self._judge()

    def _hear(self, version: int) -> None:
        self._version_heard = version
        if self._expected is not None and version >= self._expected[0]:
            self._expected = None

    def _is_last(self, new: TicketObject) -> bool:
        """Tell whether a ticket changes nothing for anybody here, nor is the next that is over."""
        end = self._observed.ticket_end(new)
        if end is not None and (self._next_at is None or end < self._next_at):
            return False
        view = self._view
        ranks = (view.rank(each.ticket.as_seen(view)) for each in self._sleepers)
        return all(each < view.rank(new) for each in ranks)

    # The thread

    def _follow(self) -> None:
        with self._changed:
            which = Selection(pool=self._view.pool_type)
            watch = self._context.objects.watch(which, self._view.version)
            self._hear(self._view.version)
        self._following.take_all(watch, self._take, begun=self._begin)

    def _begin(self) -> None:
        with self._changed:
            self._is_current = self._has_begun = True
            for sleeper in self._sleepers:
                sleeper.ticket.note_watched()

    def _take(self, happened: Happened) -> None:
        with self._changed:
            name, version = happened.id.name, happened.id.version
            if happened.what == "over":  # it says nothing of what else was written by then
                if self._view.end(happened.id):
                    self._lookout.note(name)
                    self._judge()
                return
            self._hear(version)
            before = self._view.find(name)
            if happened.what == "nothing":
                self._view.version = max(self._view.version, version)
                self._changed.notify_all()
                return
            if not self._view.apply(happened.id, happened.object):
                return
            self._lookout.note(name)
            after = self._view.find(name)
            is_last = before is None and isinstance(after, TicketObject) and self._is_last(after)
            if is_last or _is_renewal(before, after):  # it makes nothing due sooner
                self._observed.note(after)
                self._changed.notify_all()
                return
            if isinstance(after, PoolObject) and before != after:
                self._has_new_settings = True
                self._due_changed()
            self._judge()

    def _list(self) -> None:
        try:
            view = self._context.pool(self._view.pool_type)
        except LeaseError:
            self._lose(None)
        else:
            with self._changed:  # also one of an earlier time: then the store was restored
                self._take_over(view)

    def _lose(self, reason: LeaseError | None) -> None:
        """What was seen isn't kept up to date any more: have all ask for themselves."""
        with self._changed:
            self._is_current = False
            self._changed.notify_all()
            for sleeper in self._sleepers:
                if reason is not None:
                    sleeper.ticket.note_unwatched(reason)
                sleeper.verdict = None
                sleeper.wake()


def _is_renewal(before: Found | None, after: Found | None) -> bool:
    """Tell whether nothing has happened but that an owner has said that it lives."""
    return before is not None and after is not None and _unrenewed(before) == _unrenewed(after)


def _unrenewed(found: Found) -> Found:
    """Return an object without what a renewal changes."""
    found = found._replace(id=found.id._replace(version=0), raw=None)
    if isinstance(found, TicketObject):
        return found._replace(renewed="")
    if isinstance(found, ResourceObject) and found.claim is not None:
        return found._replace(claim=found.claim._replace(renewed="", renew_time=0.0))
    return found


class TicketWatch:
    """Watches of three objects, each in a thread, or all in one.

    Args:
        context: Of the place of the tickets.
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
        context: Context,
        sleeper: ClusterWaiter,
        before: TicketObject,
        pool: PoolObject,
        version: int,
    ) -> None:
        clock = context.clock
        self.before = before
        self.is_over = False
        self._context = context
        self._sleeper = sleeper
        self._clock = clock
        self._heard_at = clock.elapsed()
        self._look_at = clock.elapsed() + _LONGEST_SECONDS
        self._pool = pool
        names = (before.id.name, sleeper.ticket.object_name, pool.id.name)
        alone: list[tuple[str, ...]] = [(name,) for name in names]
        self._followings: list[Following] = []
        for each in [names] if context.objects.unites else alone:
            follow = partial(self._follow, len(self._followings), each, version)
            self._followings.append(
                Following(follow, self._end, lost=self._lose, pause_seconds=_ASK_AGAIN_SECONDS)
            )
        for following in self._followings:
            following.start("ticket-watch")

    @property
    def silent_at(self) -> float:
        """When who is before it has been silent for so long that one has to look, elapsed clock."""
        if self._context.objects.ends:
            return self._look_at
        return min(self._heard_at + self.before.ttl_seconds / 2, self._look_at)

    def look(self) -> None:
        """Make the sleeper look; the ticket before it has its time from now on again."""
        self._heard_at = self._clock.elapsed()
        self._look_at = self._heard_at + _LONGEST_SECONDS
        self._wake()

    def close(self) -> None:
        """End the threads, and their watches."""
        for each in self._followings:
            each.close()

    # The threads

    def _follow(self, number: int, names: tuple[str, ...], version: int) -> None:
        watch = self._context.objects.watch(Selection(names=names), version)
        begun = self._sleeper.ticket.note_watched
        self._followings[number].take_all(watch, self._take, begun=begun)

    def _lose(self, reason: LeaseError | None) -> None:
        if reason is not None:
            self._sleeper.ticket.note_unwatched(reason)
        self._wake()  # to find out what else it may not

    def _end(self) -> None:
        """A watch has ended: it may have missed something, and the sleeper lists again."""
        self.is_over = True
        self._wake()
        self.close()

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
                self._sleeper.ticket.is_gone = True
            self._wake()
        elif name == self._pool.id.name:
            self._take_pool(found)
        elif not is_own:
            self._heard_at = self._clock.elapsed()
            self._context.observed.note(found)
            is_same = isinstance(found, TicketObject) and _rank(found) == _rank(self.before)
            if not is_same:
                self._wake()

    def _take_pool(self, found: object) -> None:
        if not isinstance(found, PoolObject) or _grants(found) != _grants(self._pool):
            self._wake()
        if isinstance(found, PoolObject):
            self._pool = found

    def _wake(self) -> None:
        if not self._followings[0].is_closed:
            self._sleeper.wake()


def _grants(pool: PoolObject) -> tuple[object, ...]:
    return pool.settings, pool.state, pool.changed


def _rank(ticket: TicketObject) -> tuple[int, int, int, bool]:
    return ticket.priority, ticket.counts_as, ticket.place, ticket.is_parked
