"""Metrics, and messages for the operator: losses, the keeper."""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate

from leasectl import __version__
from leasectl.engines.pool_admin import EventLog
from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    LeaseError,
    NotAllowed,
    StateUnwritable,
)
from leasectl.leases.service import Service
from leasectl.pools.counted import CountedType
from leasectl.pools.overview import Overview, ShownPool
from leasectl.run.keeper_pidfd import KeeperPidfd
from leasectl.server.page.document import render
from leasectl.server.sleeps import follow_events
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed
from leasectl.system.clock import Clock
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
            what: The request, or the task of the server.
            error: Why.
        """
        for kind in _FOR_THE_OPERATOR:
            if isinstance(error, kind):
                self.tell(kind, f"{what} failed: {error}")


_BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)


class _Waits:
    """How long the grants of a pool were waited for."""

    def __init__(self) -> None:
        self.total = 0
        self.seconds = 0.0
        self._counts = [0] * (len(_BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        self.total += 1
        self.seconds += seconds
        self._counts[bisect_left(_BUCKETS, seconds)] += 1

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """The upper bound of each bucket, and how many grants waited no longer."""
        return zip([*map("{:g}".format, _BUCKETS), "+Inf"], accumulate(self._counts))


class Meter:
    """Counts what happens in the state directory or store while the server runs, from its events.

    So it counts what commands and other servers do as well.
    """

    def __init__(self) -> None:
        self._last: int | None = None  # the number of the last event that was read
        self._waits: dict[str, _Waits] = {}
        self._lost: Counter[str] = Counter()

    @property
    def types(self) -> Sequence[str]:
        """The pools that have granted anything."""
        return tuple(self._waits)

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
        self._waits.setdefault(pool_type, _Waits()).add(waited_seconds)

    def text(self, overview: Overview) -> str:
        """Return all metrics.

        Args:
            overview: The pools now; requests that wait without this server count as well.
        """
        return self._render(overview.pools, at=overview.at, is_counted=False)

    def text_of_counts(self, counts: Sequence[CountedType]) -> str:
        """Return all metrics of a server that only counts.

        Args:
            counts: Its counts; requests that wait without this server aren't known.
        """
        return self._render(counts, is_counted=True)

    def _render(self, pools: Sequence[ShownPool | CountedType], **more: object) -> str:
        types = [each.type for each in pools]
        return render(
            "metrics.txt",
            pools=pools,
            lost={each: self._lost[each] for each in (*types, *self._lost)},
            waits={**{each: _Waits() for each in types}, **self._waits},
            version=__version__,
            python=sys.version.split()[0],
            **more,
        )


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
        self._stop: Callable[[], None] | None = None

    def open(self) -> None:
        """Begin: what was lost before is known, but told no more.

        Raises:
            LeaseError: The events can't be read.
        """
        self._stop = follow_events(self._service.events.watch(), self._look)
        self._read(is_news=False)

    def close(self) -> None:
        """Follow no longer."""
        if self._stop is not None:
            self._stop()
            self._stop = None

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
        try:
            self._read(is_news=True)
        except LeaseError as error:
            self._notices.failed("looking for lost leases", error)

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
    """Watches the keeper in the event loop, and starts another when one dies that was needed.

    Args:
        service: On the state directory that is served.
        notices: What the server's operator is told by.
    """

    def __init__(self, service: Service, notices: Notices) -> None:
        self._service = service
        self._notices = notices
        self._keeper: KeeperPidfd | None = None
        self._again: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Watch the keeper that there is, unless it is watched; to be called after each grant."""
        if self._again is None and (self._keeper is None or self._keeper.fd is None):
            self._look()

    def close(self) -> None:
        """Watch no longer."""
        self._stop()
        if self._keeper is not None:
            self._keeper.close()

    def _stop(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._keeper is not None and self._keeper.fd is not None:
            asyncio.get_running_loop().remove_reader(self._keeper.fd)

    def _look(self) -> None:
        self._stop()
        if self._keeper is None:
            self._keeper = KeeperPidfd(
                self._service,
                lock_patience=lambda: None,
                failed=lambda error: self._notices.failed("watching the keeper", error),
            )
        else:
            self._keeper.look()
        loop = asyncio.get_running_loop()
        if self._keeper.fd is not None:
            loop.add_reader(self._keeper.fd, self._look)
        elif self._keeper.look_at is not None:
            pause = self._keeper.look_at - self._service.clock.elapsed()
            self._again = loop.call_later(max(0.0, pause), self._look)
