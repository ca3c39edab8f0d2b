"""Metrics, and messages for the operator: losses, the keeper."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from leasectl import __version__
from leasectl.engines.pool_admin import EventLog, EventWatch
from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    LeaseError,
    NotAllowed,
    StateUnwritable,
)
from leasectl.leases.recovery import recover
from leasectl.leases.service import Service
from leasectl.pools.counted import CountedType
from leasectl.pools.overview import Overview, ShownPool
from leasectl.state import keeper_process
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed
from leasectl.system.backoff import Backoff, Restarts
from leasectl.system.clock import Clock
from leasectl.system.process import open_pidfd
from leasectl.text.naming import as_given, is_reserved

_TELL_AGAIN_SECONDS = 60.0
# What no client is to blame for, and none can put right.
_FOR_THE_OPERATOR = (BackendUnreachable, CorruptState, NotAllowed, StateUnwritable)


class Notices:
    """Lines for the operator, of each kind one a minute at most.

    Args:
        warn: Called with a line.
        clock: Where times come from.
    """

    def __init__(self, warn: Callable[[str], None], *, clock: Clock) -> None:
        self._warn = warn
        self._clock = clock
        self._told: dict[Hashable, float] = {}

    def tell(self, kind: Hashable, line: str) -> None:
        """Pass a line on, unless one of its kind was within the last minute."""
        now = self._clock.elapsed()
        for old in [each for each, at in self._told.items() if now - at >= _TELL_AGAIN_SECONDS]:
            del self._told[old]
        if kind not in self._told:
            self._told[kind] = now
            self._warn(line)

    def tell_from_thread(self) -> Callable[[str], None]:
        """What a thread calls with a line for the operator; a kind are lines that say the same.

        To be asked for in the event loop.
        """
        loop = asyncio.get_running_loop()

        def tell(line: str) -> None:
            try:
                loop.call_soon_threadsafe(self.tell, line, line)
            except RuntimeError:  # the server has ended meanwhile
                self._warn(line)

        return tell

    def failed(self, what: str, error: LeaseError) -> None:
        """Tell that something failed, if that is for the operator to know.

        Args:
            what: The request, or whoever made it.
            error: Why.
        """
        for kind in _FOR_THE_OPERATOR:
            if isinstance(error, kind):
                self.tell(kind, f"{what} failed: {error}")

    def backend_is_silent(self, line: str) -> None:
        """Tell that the backend doesn't answer, without a request having failed."""
        self.tell(BackendUnreachable, line)


_BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)
_NO_GRANTS = (0,) * (len(_BUCKETS) + 1)


class Meter:
    """Counts what happens in the state directory or store while the server runs, from its events.

    So it counts what commands and other servers do as well.
    """

    def __init__(self) -> None:
        self._last: int | None = None  # the number of the last event that was read
        self._counts: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._lost: Counter[str] = Counter()

    @property
    def types(self) -> Sequence[str]:
        """The pools that have granted anything."""
        return tuple(self._counts)

    def begin(self, log: EventLog) -> None:
        """Count events from now on."""
        self._last = log.last_number()

    def read(self, log: EventLog) -> None:
        """Count the events since the last time.

        Raises:
            LeaseError: They can't be read.
        """
        if self._last is None:
            self.begin(log)
        missed = list[Missed]()
        for event in log.read(ALL_EVENTS, after=self._last or 0, missed=missed.append):
            self._last = max(self._last or 0, event.number)
            if is_reserved(event.type):
                continue
            if event.kind == "granted":
                self.granted(event.type, event.wait_seconds or 0.0)
            elif event.kind == "lost":
                self._lost[event.type] += len(event.names)
        if any(each.is_restored for each in missed):
            self.begin(log)

    def granted(self, pool_type: str, waited_seconds: float) -> None:
        """Count a grant."""
        counts = self._counts.setdefault(pool_type, list(_NO_GRANTS))
        bucket = next((n for n, most in enumerate(_BUCKETS) if waited_seconds <= most), -1)
        counts[bucket] += 1
        self._seconds[pool_type] = self._seconds.get(pool_type, 0.0) + waited_seconds

    def text(self, overview: Overview) -> str:
        """All metrics.

        Args:
            overview: The pools now; who waits in them without this server counts as well.
        """
        pools, at = overview.pools, overview.at
        held = {p.type: [r.lease.lease.acquire_time for r in p.resources if r.lease] for p in pools}
        waiting = {p.type: [each.since for each in p.queue] for p in pools}
        lines = [
            *_gauge("resources_held", "Resources held", {p.type: p.held for p in pools}),
            *_gauge("resources_free", "Resources free", {p.type: p.free for p in pools}),
            *_gauge(
                "resources_unavailable",
                "Free resources that are unavailable: cordoned, leaving, or held back",
                {p.type: p.unavailable for p in pools},
            ),
            *_gauge("oldest_lease_seconds", "Age of the oldest lease, 0 for none", _ages(held, at)),
            *_gauge("requests_waiting", "Requests waiting", {p.type: len(p.queue) for p in pools}),
            *_gauge(
                "oldest_wait_seconds",
                "Time that the oldest request has waited, 0 for none",
                _ages(waiting, at),
            ),
            *_waiting_by_priority(pools),
            *_settings(pools),
            *self._since_it_started([p.type for p in pools]),
        ]
        return "\n".join([*lines, ""])

    def text_of_counts(self, counts: Sequence[CountedType]) -> str:
        """All metrics where pools are another server's, which only counts.

        Args:
            counts: As it told them; who waits without this server isn't known.
        """
        lines = [
            *_gauge("resources_held", "Resources held", {c.type: c.held for c in counts}),
            *_gauge("resources_free", "Resources free", {c.type: c.free for c in counts}),
            *_gauge(
                "resources_unavailable",
                "Resources that are neither: being cleaned, or put aside",
                {c.type: c.capacity - c.held - c.free for c in counts},
            ),
            *_gauge(
                "requests_waiting", "Requests waiting here", {c.type: c.waiting for c in counts}
            ),
            *self._since_it_started([c.type for c in counts]),
        ]
        return "\n".join([*lines, ""])

    def _since_it_started(self, types: Iterable[str]) -> Iterable[str]:
        yield from _head("build_info", "The version of leasectl and of Python", "gauge")
        python = sys.version.split()[0]
        yield f'leasectl_build_info{{version="{__version__}",python="{python}"}} 1'
        yield from _head("leases_lost_total", "Leases lost since this server started", "counter")
        for pool_type in dict.fromkeys((*types, *self._lost)):
            yield f"leasectl_leases_lost_total{{{_type(pool_type)}}} {self._lost[pool_type]}"
        yield from _head("grants_total", "Grants by anybody since this server started", "counter")
        known = {**dict.fromkeys(types, _NO_GRANTS), **self._counts}
        for pool_type, counts in known.items():
            yield f"leasectl_grants_total{{{_type(pool_type)}}} {sum(counts)}"
        yield from _head("wait_seconds", "How long these grants were waited for", "histogram")
        yield from self._histogram(known)

    def _histogram(self, known: Mapping[str, Sequence[int]]) -> Iterable[str]:
        for pool_type, counts in known.items():
            label, total = _type(pool_type), 0
            for most, count in zip([*map("{:g}".format, _BUCKETS), "+Inf"], counts):
                total += count
                yield f'leasectl_wait_seconds_bucket{{{label},le="{most}"}} {total}'
            yield f"leasectl_wait_seconds_sum{{{label}}} {self._seconds.get(pool_type, 0.0):.6f}"
            yield f"leasectl_wait_seconds_count{{{label}}} {total}"


def _ages(begins: Mapping[str, Sequence[float]], at: float) -> Mapping[str, float]:
    """Return for how long the oldest of each pool lasts."""
    return {
        pool_type: round(max(0.0, at - min(times, default=at)), 3)
        for pool_type, times in begins.items()
    }


def _waiting_by_priority(pools: Sequence[ShownPool]) -> Iterable[str]:
    name = "requests_waiting_by_priority"
    yield from _head(name, "Requests waiting, by the priority that they asked for", "gauge")
    for pool in pools:
        for priority, number in sorted(Counter(each.priority for each in pool.queue).items()):
            yield f'leasectl_{name}{{{_type(pool.type)},priority="{priority}"}} {number}'


def _settings(pools: Sequence[ShownPool]) -> Iterable[str]:
    """How pools grant."""
    yield from _gauge(
        "pace_seconds",
        "Seconds for each grant, 0 without a pace",
        {p.type: p.settings.pace_seconds for p in pools},
    )
    yield from _gauge(
        "burst",
        "Grants that may come at once before the pace counts",
        {p.type: p.settings.burst for p in pools},
    )
    yield from _gauge(
        "aging_seconds",
        "Seconds of waiting that count as one priority, 0 for none",
        {p.type: p.settings.aging_seconds for p in pools},
    )
    yield from _gauge(
        "next_grant_seconds",
        "Seconds until the pace allows the next grant",
        {p.type: round(p.next_grant_in_seconds, 3) for p in pools},
    )


def _gauge(name: str, meaning: str, values: Mapping[str, float]) -> list[str]:
    lines = [f"leasectl_{name}{{{_type(each)}}} {value}" for each, value in values.items()]
    return [*_head(name, meaning, "gauge"), *lines]


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP leasectl_{name} {meaning}.", f"# TYPE leasectl_{name} {kind}"]


def _type(pool_type: str) -> str:
    return f'type="{pool_type}"'  # a type has nothing that would have to be escaped


# For so long a release may come too late; so long are events kept at the least, as a rule.
_REMEMBERED_SECONDS = 24 * 3600.0


class LossWatch:
    """Follows the events of the leases that are served.

    Args:
        service: On the state directory and backend that are served.
        notices: Told of what was lost.
    """

    def __init__(self, service: Service, notices: Notices) -> None:
        self._service = service
        self._notices = notices
        self._lost: dict[str, Event] = {}  # by name, until it is granted anew
        self._last = 0
        self._watch: EventWatch | None = None

    def open(self) -> None:
        """Begin: what was lost before is known, but told no more.

        Raises:
            LeaseError: The events can't be read.
        """
        self._watch = self._service.events.watch()
        asyncio.get_running_loop().add_reader(self._watch.fd, self._look)
        self._read(is_news=False)

    def close(self) -> None:
        """Follow no longer."""
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch.fd)
            self._watch.close()
            self._watch = None

    def tell_late(self, name: str) -> bool:
        """Tell of a release of what may be lost; returns whether it is."""
        self._look()
        event = self._lost.get(name)
        if event is None:
            return False
        self._notices.tell(
            ("late", event.number),
            f"{name} was released, but {as_given(event.holder_identity)} had already "
            f"lost it: {event.reason}",
        )
        return True

    def _look(self) -> None:
        assert self._watch is not None, "it has begun"
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._watch.fd)  # what is behind the number is about to change
        self._watch.clear()
        loop.add_reader(self._watch.fd, self._look)
        try:
            self._read(is_news=True)
        except LeaseError as error:
            self._notices.failed("looking after what is lost", error)

    def _read(self, *, is_news: bool) -> None:
        since = self._service.clock.wall() - _REMEMBERED_SECONDS
        wanted, missed = EventFilter(since=since), list[Missed]()
        for event in self._service.events.read(wanted, after=self._last, missed=missed.append):
            self._last = event.number
            if event.kind == "lost":
                self._lost.update(dict.fromkeys(event.names, event))
                if is_news:
                    self._tell(event)
            elif event.kind == "granted":
                for name in event.names:
                    self._lost.pop(name, None)
        for name in [each for each, event in self._lost.items() if event.time < since]:
            del self._lost[name]
        if any(each.is_restored for each in missed):
            self._last = 0
            self._lost.clear()
            self._read(is_news=False)

    def _tell(self, event: Event) -> None:
        names = " ".join(event.names)
        self._notices.tell(
            event.number, f"{as_given(event.holder_identity)} has lost {names}: {event.reason}"
        )


class KeeperWatch:
    """Has another keeper started when one dies that was needed.

    Args:
        service: On the state directory that is served.
        notices: What the server's operator is told by.
    """

    def __init__(self, service: Service, notices: Notices) -> None:
        self._service = service
        self._notices = notices
        self._pidfd: int | None = None
        self._restarts = Restarts(Backoff(1.0, 30.0))
        self._again: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Watch the keeper that there is, unless it is watched; to be called after each grant."""
        if self._pidfd is not None or self._again is not None:
            return
        loop = asyncio.get_running_loop()
        try:
            self._pidfd = self._find()
            is_missing = self._pidfd is None and self._service.handles.any_watched()
        except LeaseError as error:
            self._notices.failed("looking after the keeper", error)
            is_missing = True
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self._ended)
            self._restarts.started(loop.time())
        elif is_missing:
            self._again = loop.call_later(self._restarts.pause(loop.time()), self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self.look()

    def close(self) -> None:
        """Watch no longer."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _find(self) -> int | None:
        keeper = keeper_process.running(self._service.state)
        if keeper is None and self._service.handles.any_watched():
            recover(self._service)
            keeper = keeper_process.running(self._service.state)
        return None if keeper is None else open_pidfd(keeper)

    def _ended(self) -> None:
        self.close()
        loop = asyncio.get_running_loop()
        self._again = loop.call_later(self._restarts.pause(loop.time()), self._look_again)
