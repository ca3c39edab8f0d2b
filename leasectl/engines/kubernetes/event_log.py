"""Read events of the cluster and of this machine, each once.

A cluster usually keeps events for an hour, from all processes that could send them. This state
directory keeps the events of its own actions for as long as it keeps any. Both are merged by their
times. The cluster's events have numbers in the order of their arrival; events that only this state
directory has get unused numbers between them. So a reader that continues after a number misses no
event, however late it arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from leasectl.engines.cluster.watches import Follower, Following
from leasectl.engines.kubernetes.api.address import Collection, events
from leasectl.engines.kubernetes.api.refusals import is_not_permitted
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import WatchEvent, WatchExpired
from leasectl.engines.kubernetes.encoding import identity_of
from leasectl.engines.kubernetes.names import KIND, POOL, label_of_type
from leasectl.engines.kubernetes.posting import EVENT, NUMBERS_PER_VERSION, parse_post
from leasectl.engines.pool_admin import EventLog, EventWatch
from leasectl.errors import AccessRefused
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed, number_of
from leasectl.system.clock import rfc3339

_IN_CLUSTERS = "a cluster keeps events for its --event-ttl, by default an hour"
_Answer = TypeVar("_Answer")


class KubernetesEventLog:
    """The events of one namespace, as `EventLog`.

    Args:
        api: Of the cluster.
        namespace: Which.
        own: What this state directory has of them; None for none.

    Attributes:
        remark: How far back they reach, for people; empty before they are read.
    """

    def __init__(self, api: Api, namespace: str, *, own: EventLog | None) -> None:
        self.remark = ""
        self._api = api
        self._events = events(namespace)
        self._own = own
        self._watch: KubernetesEventWatch | None = None
        self._given: set[tuple[object, ...]] = set()  # of its own, not in the cluster by then

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        """Implements `EventLog.read`; after a number, only the cluster's, as they arrived."""
        found = self._of_cluster(wanted.type, after)
        if found is None:
            assert self._own is not None
            return self._own.read(wanted, after=after, missed=missed)
        if after:
            new = (each for each in found if each.number > after and _key(each) not in self._given)
            return filter(wanted.wants, sorted(new, key=number_of))
        return filter(wanted.wants, self._with_own(found, wanted))

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        if not number:
            return []
        if only_recent:
            found = self._of_cluster(wanted.type, 0)
            if found is None:
                assert self._own is not None
                return self._own.latest(wanted, number, only_recent=True)
            by_time = sorted(filter(wanted.wants, found), key=_when)
            return by_time[-number:][::-1]
        return list(self.read(wanted))[-number:][::-1]

    def last_number(self) -> int:
        """Implements `EventLog.last_number` for the cluster's events; ours are read at 0."""
        if self._watch is not None:
            return self._watch.reached()
        found = self._of_cluster(None, 0)
        if found is None:
            assert self._own is not None
            return self._own.last_number()
        return max(map(number_of, found), default=0)

    def watch(self) -> EventWatch:
        watch = self._allowed(lambda: KubernetesEventWatch(self._api, self._events))
        if watch is None:
            assert self._own is not None
            return self._own.watch()
        self._watch = watch
        return watch

    # Of the cluster

    def _of_cluster(self, pool_type: str | None, after: int) -> list[Event] | None:
        """Return the cluster's events, at least those after a number; None if we may not."""
        if self._watch is not None:
            come = self._watch.come_after(after)
            if come is not None:
                return come
        of_pool = f",{POOL}={label_of_type(pool_type)}" if pool_type else ""
        labels = f"{KIND}={EVENT}{of_pool}"
        found = self._allowed(lambda: self._api.list(self._events, labels=labels))
        if found is None:
            return None
        return [event for each in found.items for event in parse_post(each)]

    def _allowed(self, ask: Callable[[], _Answer]) -> _Answer | None:
        """Ask the cluster; return None, and note it in `remark`, if we may read only our own."""
        try:
            return ask()
        except AccessRefused as refusal:
            if self._own is None or not is_not_permitted(refusal):
                raise
            self.remark = f"only events of this machine are shown: {refusal}"
            return None

    # Both

    def _with_own(self, found: Sequence[Event], wanted: EventFilter) -> list[Event]:
        """The cluster's with those that only this machine has, by their times."""
        known = set(map(_key, found))
        own = [] if self._own is None else list(self._own.read(EventFilter(type=wanted.type)))
        only_here = [each for each in own if _key(each) not in known]
        self._given = set(map(_key, only_here))
        self.remark = _reach(found, only_here)
        both = sorted([*found, *only_here], key=_when)
        return _numbered(both, frozenset(map(_key, only_here)))


def _key(event: Event) -> tuple[object, ...]:
    """What is the same of an event in both places, and of no other."""
    return (event.time, event.kind, event.type, event.names, event.fences, event.handle)


def _when(event: Event) -> tuple[float, int]:
    return (event.time, event.number)


def _numbered(events: Sequence[Event], only_here: frozenset[tuple[object, ...]]) -> list[Event]:
    """Give those numbers that are only here: after what was before them, and before all else."""
    told = [each.number for each in events if _key(each) not in only_here]
    first = next((n for n, each in enumerate(events) if _key(each) not in only_here), len(events))
    last = min(told, default=(len(events) + 1) * NUMBERS_PER_VERSION) - first - 1
    numbered = []
    for each in events:
        if _key(each) in only_here:
            last += 1
            numbered.append(each._replace(number=last))
        else:
            last = max(last, each.number)
            numbered.append(each)
    return numbered


def _reach(found: Iterable[Event], only_here: Sequence[Event]) -> str:
    oldest = min((each.time for each in found), default=None)
    if oldest is None:
        what = "the cluster no longer has events of other machines"
        return f"{what}: {_IN_CLUSTERS}" if only_here else ""
    since = str(rfc3339(int(oldest))).replace(".000000", "")
    what = f"events of all machines are shown since {since}"
    if only_here and only_here[0].time < oldest:
        what += "; earlier ones of this machine only"
    return f"{what} ({_IN_CLUSTERS})"


_OURS = f"{KIND}={EVENT}"


class KubernetesEventWatch(Follower):
    """Implements `EventWatch`; its thread ends soon after it is closed.

    Args:
        api: Of the cluster.
        collection: Its events.

    Raises:
        LeaseError: They can't be read.
    """

    def __init__(self, api: Api, collection: Collection) -> None:
        super().__init__()
        self._api = api
        self._collection = collection
        self._lock = threading.Lock()
        # Under the lock:
        self._come: list[Event] = []
        self._version = self._base = self._list_after(None)
        self._following = Following(self._follow)
        self._following.start("event-watch")

    def clear(self) -> int:
        self._wakeup.clear()
        return 0

    def come_after(self, number: int) -> list[Event] | None:
        """What has come with larger numbers; None where some of that was there before it began.

        What has smaller ones was read, and isn't asked for again.
        """
        version = number // NUMBERS_PER_VERSION
        with self._lock:
            if self._following.is_closed or version < self._base:
                return None
            self._come = [each for each in self._come if each.number > number]
            self._base = version
            return list(self._come)

    def reached(self) -> int:
        """No event that is still to come has a number as small as that."""
        with self._lock:
            return self._version * NUMBERS_PER_VERSION + NUMBERS_PER_VERSION - 1

    # The thread

    def _follow(self) -> None:
        version = str(self._version)
        watch = self._api.watch(self._collection, resource_version=version, labels=_OURS)
        try:
            self._following.take_all(watch, self._take)
        except WatchExpired:
            self._version = self._list_after(self._version)
            self._wakeup.set()

    def _take(self, event: WatchEvent) -> None:
        version = identity_of(event.object).version
        come = parse_post(event.object) if event.type == "ADDED" else []
        with self._lock:
            self._come += [each for each in come if each.number // NUMBERS_PER_VERSION == version]
            self._version = max(self._version, version)
        if come:
            self._wakeup.set()

    def _list_after(self, version: int | None) -> int:
        """List all, to go on from there; returns when that was.

        Args:
            version: What is newer has come since; None for nothing has.
        """
        found = self._api.list(self._collection, labels=_OURS)
        if version is not None:
            new = [each for each in found.items if identity_of(each).version > version]
            with self._lock:
                self._come += [event for each in new for event in parse_post(each)]
        now = found.resource_version
        return int(now) if now.isdecimal() else 0
