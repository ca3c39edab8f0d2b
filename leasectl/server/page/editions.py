"""Render what was seen, and find the sections that a viewer lacks."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from leasectl import __version__
from leasectl.engines.event_log import EventLog, EventWatch
from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.pools.admin import PoolService
from leasectl.pools.counted import Counts, count
from leasectl.pools.shown import Overview, ShownPool
from leasectl.pools.statistics import Series, Window, series_of
from leasectl.pools.timeline import Present, Timeline
from leasectl.server.page.document import document, joined, tag
from leasectl.server.page.sections import (
    Section,
    sections_of,
    sections_of_counts,
    totals,
    totals_of_counts,
)
from leasectl.server.page.sign_in import sign_out_form
from leasectl.state.event import EventFilter, Missed
from leasectl.system.clock import rfc3339

# The picture has the shortest of these that shows all there is, else the longest.
_SPANS_SECONDS = (3600.0, 6 * 3600.0)
_STEPS = 120
# It is drawn anew no more often, as who looks sees no difference.
_SAME_HISTORY_SECONDS = 10.0
# What has gone by is forgotten by reading again what is still shown, so often.
_READ_AGAIN_SECONDS = 3600.0


class History:
    """The pools' last hours.

    Args:
        log: What happened in them.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        self._read_at = now
        self._last = 0
        self._timelines: dict[str, Timeline] = {}
        self._drawn_at = float("-inf")
        self._drawn: dict[str, Series] = {}

    def series(self, pools: Sequence[ShownPool], now: float) -> Mapping[str, Series]:
        """How things went, by type; only of pools that somebody wanted something of.

        Args:
            pools: As they are.
            now: Wall clock, seconds since the epoch.

        Raises:
            LeaseError: The events can't be read.
        """
        if not 0 <= now - self._read_at < _READ_AGAIN_SECONDS:
            self._begin(now)
        if 0 <= now - self._drawn_at < _SAME_HISTORY_SECONDS:
            return self._drawn
        self._read(now)
        span = self._span(now)
        self._drawn_at, self._drawn = now, {}
        for pool in pools:
            timeline = self._timelines.get(pool.type)
            if timeline is not None:
                timeline.settle(_present(pool, now))
                # Steps begin at the same times whenever it is drawn, or all of it would tremble.
                until = (now // (span / _STEPS) + 1) * (span / _STEPS)
                window = Window(until - span, until)
                drawn = series_of(timeline, window, steps=_STEPS)
                if any(drawn.held) or any(drawn.waiting):
                    self._drawn[pool.type] = drawn
        return self._drawn

    def _read(self, now: float) -> None:
        wanted = EventFilter(since=now - _SPANS_SECONDS[-1])
        missed = list[Missed]()
        for event in self._log.read(wanted, after=self._last, missed=missed.append):
            self._last = max(self._last, event.number)
            self._timelines.setdefault(event.type, Timeline()).add(event)
        if any(each.is_restored for each in missed):
            self._begin(now)
            self._read(now)

    def _span(self, now: float) -> float:
        """How much of the past is shown: the same for all, so that they can be compared."""
        firsts = (each.first for each in self._timelines.values() if each.first is not None)
        known = now - min(firsts, default=now)
        return next((each for each in _SPANS_SECONDS if known <= each), _SPANS_SECONDS[-1])


def _present(pool: ShownPool, at: float) -> Present:
    held = {each.name: each.lease.lease.acquire_time for each in pool.resources if each.lease}
    waiting = {each.ticket: each.since for each in pool.queue}
    return Present(at, pool.capacity, held, waiting)


_QUICKLY = 4  # of gzip's levels; rows are alike, so the slower ones gain little
_NUMBER = re.compile("[0-9]{1,12}", re.ASCII)


class Body(NamedTuple):
    """The bytes of an answer, as they are and packed."""

    plain: bytes
    packed: bytes


def body_of(text: str) -> Body:
    """Pack a text."""
    plain = text.encode()
    return Body(plain, gzip.compress(plain, _QUICKLY, mtime=0))


class Edition(NamedTuple):
    """What the page shows until something changes.

    Args:
        server: Tells the editions of one server from those of another.
        number: Grows.
        title: Of the page.
        backend: Whose pools they are.
        problem: Why it can't be told how they are; else empty.
        sections: What there is to show.
        changed: Since which number each of them has been as it is.
    """

    server: str
    number: int = 0
    title: str = "leasectl"
    backend: str = ""
    problem: str = ""
    sections: tuple[Section, ...] = ()
    changed: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What a page asks by for what is newer."""
        return f"{self.server}.{self.number}"

    def succeeded_by(self, **changes: object) -> Edition:
        """The next edition, or this one if the next would look the same.

        Args:
            changes: In what it differs, by the names of fields.
        """
        found = self._replace(**changes)  # type: ignore[arg-type]  # checked where it is called
        if found._looks() == self._looks():
            return self._replace(sections=found.sections)  # with the newer times
        number = self.number + 1
        before = {each.id: (each.facts, n) for each, n in zip(self.sections, self.changed)}
        changed = []
        for each in found.sections:
            facts, since = before.get(each.id, (None, number))
            changed.append(since if facts == each.facts else number)
        return found._replace(number=number, changed=tuple(changed))

    def _looks(self) -> object:
        return self.title, self.problem, [(each.id, each.facts) for each in self.sections]

    def whole(self, now: float, *, can_sign_out: bool) -> str:
        """The whole page.

        Args:
            now: Wall clock, seconds since the epoch.
            can_sign_out: There is somebody who has signed in.
        """
        head = tag(
            "header",
            tag("h1", "leasectl"),
            tag("span", self.backend, class_="backend"),
            tag("span", _seen_at(now), id="state", class_="state", role="status"),
        )
        problem = tag("p", self.problem, id="problem", class_="problem", role="alert")
        sections = joined((each.write(now) for each in self.sections), "\n")
        main = tag("main", sections, data_edition=self.name, data_at=f"{now:.3f}")
        version = tag("span", f"leasectl {__version__}")
        footer = tag("footer", version, sign_out_form() if can_sign_out else None)
        parts = (head, tag("div", problem, class_="banner"), main, footer)
        return document(self.title, joined(parts, "\n"), is_refreshed=True)

    def last_seen(self, after: str) -> int:
        """The last change of a section that a page knows; -1 for none.

        Args:
            after: The name of the edition that it shows; all is new after one of another server.
        """
        server, _, number = after.partition(".")
        if server != self.server or not _NUMBER.fullmatch(number):
            return -1
        return max((each for each in self.changed if each <= int(number)), default=-1)

    def news(self, seen: int, now: float) -> str:
        """What is new to a page, as JSON for its script.

        Args:
            seen: As `last_seen` has it.
            now: Wall clock, seconds since the epoch.
        """
        told = {
            "edition": self.name,
            "at": round(now, 3),
            "title": self.title,
            "problem": self.problem,
            "order": [each.id for each in self.sections],
            "changed": {
                each.id: each.write(now)
                for each, since in zip(self.sections, self.changed)
                if since > seen
            },
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _seen_at(now: float) -> str:
    return f"as of {(rfc3339(now) or '')[11:19]} UTC"


# Pages that ask within so long are told the same.
_SAME_SECONDS = 2.0


class Editions:
    """The editions of one server, one after the other; to be used by one thread.

    Args:
        open_service: Opens the state directory and backend that are served, for this thread.
        needs_token: Who sees the page may have signed in, and may sign out.
    """

    def __init__(self, open_service: Callable[[], Service], *, needs_token: bool) -> None:
        self._open_service = open_service
        self._needs_token = needs_token
        self._service: Service | None = None
        self._history: History | None = None
        self._watch: EventWatch | None = None
        self._version = 0
        self._edition = Edition(secrets.token_hex(4))
        self._whole: Body | None = None
        self._news: dict[int, Body] = {}  # by what was seen, so few whatever is asked for
        self._told_at = 0.0

    # ---- what is seen

    def look(self) -> Edition:
        """See how the pools are; it is the same edition as before if that shows nothing new."""
        before = self._edition
        if self._watch is not None:
            self._watch.clear()  # before: what happens from here on, is told of
        try:
            self._edition = self._see(self._opened())
        except LeaseError as error:
            self._edition = before.succeeded_by(problem=str(error))
        self._whole = None
        if self._edition.number != before.number:
            self._news = {}
        return self._edition

    def has_changed(self) -> bool:
        """Return whether the records have changed since the last look."""
        try:
            return self._opened().state.data_version() != self._version
        except LeaseError:
            return True  # the next look says why

    def whole(self) -> Body:
        """The whole page, as of the last look."""
        if self._whole is None:
            now = self._now()
            self._whole = body_of(self._edition.whole(now, can_sign_out=self._needs_token))
        return self._whole

    def news(self, after: str) -> Body:
        """What is new to a page that shows another edition."""
        seen, now = self._edition.last_seen(after), self._now()
        if not 0 <= now - self._told_at < _SAME_SECONDS:  # they say what time it is
            self._news, self._told_at = {}, now
        found = self._news.get(seen)
        if found is None:
            found = self._news[seen] = body_of(self._edition.news(seen, now))
        return found

    def _see(self, service: Service) -> Edition:
        self._version = service.state.data_version()  # before: what comes meanwhile is seen later
        if service.kind.counts_types:
            return self._see_counts(count(service, None))
        overview = PoolService(service).look()
        return self._edition.succeeded_by(
            title=f"{totals(overview)} · leasectl",
            backend=overview.backend,
            problem="",
            sections=sections_of(overview, self._histories(service, overview)),
        )

    def _see_counts(self, counts: Counts) -> Edition:
        return self._edition.succeeded_by(
            title=f"{totals_of_counts(counts)} · leasectl",
            backend=counts.backend,
            problem="",
            sections=sections_of_counts(counts),
        )

    def _histories(self, service: Service, overview: Overview) -> Mapping[str, Series]:
        with contextlib.suppress(LeaseError):  # what is now is to be seen all the same
            if self._history is None:
                self._history = History(service.events)
            return self._history.series(overview.pools, overview.at)
        return {}

    def _opened(self) -> Service:
        if self._service is None:
            self._service = self._open_service()
        return self._service

    def _now(self) -> float:
        return self._service.clock.wall() if self._service is not None else 0.0

    # ---- what tells that there is more

    def listen(self) -> int | None:
        """Be told when something happens on a server, which isn't in the records here.

        Returns:
            A descriptor, readable when that may be so; None where the records tell, and while the
            server doesn't.
        """
        with contextlib.suppress(LeaseError):
            service = self._opened()
            if service.kind.remote:
                self._watch = service.events.watch()
                return self._watch.fd
        return None

    def stop_listening(self) -> None:
        """Not be told any more."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def close(self) -> None:
        """Close what was opened."""
        self.stop_listening()
        if self._service is not None:
            self._service.state.close()
            self._service = None
