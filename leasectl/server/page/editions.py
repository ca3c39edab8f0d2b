"""Render what was seen, and find the sections that a viewer lacks."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from markupsafe import Markup

from leasectl import __version__
from leasectl.engines.pool_admin import EventWatch
from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.pools import admin
from leasectl.pools.counted import Counts, count
from leasectl.pools.overview import Overview
from leasectl.server.page.document import render
from leasectl.server.page.history import History, PoolHistory
from leasectl.server.page.sections import (
    ANY_VIEW,
    Section,
    sections_of,
    sections_of_counts,
    totals,
)
from leasectl.server.page.view import RANGES, View
from leasectl.system.clock import rfc3339

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

    def whole(self, now: float, view: View = ANY_VIEW, *, can_sign_out: bool) -> str:
        """The whole page.

        Args:
            now: Wall clock, seconds since the epoch.
            view: What is shown of it.
            can_sign_out: The viewer has signed in.
        """
        written = [each.write(now, view) for each in self.sections if each.is_in(view)]
        return render(
            "page.html",
            title=self._title(view),
            edition=self,
            sections=Markup("\n").join(written),
            view=view,
            ranges=RANGES,
            now=now,
            seen_at=(rfc3339(now) or "")[11:19],
            version=__version__,
            can_sign_out=can_sign_out,
        )

    def _title(self, view: View) -> str:
        return f"{view.pool} · {self.title}" if view.pool else self.title

    def last_seen(self, after: str) -> int:
        """The last change of a section that a page knows; -1 for none.

        Args:
            after: The name of the edition that it shows; all is new after one of another server.
        """
        server, _, number = after.partition(".")
        if server != self.server or not _NUMBER.fullmatch(number):
            return -1
        return max((each for each in self.changed if each <= int(number)), default=-1)

    def news(self, seen: int, now: float, view: View = ANY_VIEW) -> str:
        """What is new to a page, as JSON for its script.

        Args:
            seen: As `last_seen` has it.
            now: Wall clock, seconds since the epoch.
            view: What is shown of it.
        """
        in_view = [pair for pair in zip(self.sections, self.changed) if pair[0].is_in(view)]
        told = {
            "edition": self.name,
            "at": round(now, 3),
            "title": self._title(view),
            "problem": self.problem,
            "order": [each.id for each, _ in in_view],
            "changed": {each.id: each.write(now, view) for each, since in in_view if since > seen},
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


# Pages that ask within so long are told the same.
_SAME_SECONDS = 2.0
_MOST_KEPT = 64
_Key = TypeVar("_Key")


def _kept(kept: dict[_Key, Body], key: _Key, body: Body) -> Body:
    """Keep an answer for others who ask, but not one for each of any number of searches."""
    if len(kept) < _MOST_KEPT:
        kept[key] = body
    return body


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
        # Of the last look, so that many who ask for the same are told the same.
        self._wholes: dict[View, Body] = {}
        self._news: dict[tuple[int, View], Body] = {}
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
        self._wholes = {}
        if self._edition.number != before.number:
            self._news = {}
        return self._edition

    def has_changed(self) -> bool:
        """Return whether the records have changed since the last look."""
        try:
            return self._opened().state.data_version() != self._version
        except LeaseError:
            return True  # the next look says why

    def whole(self, view: View = ANY_VIEW) -> Body:
        """The whole page, as of the last look."""
        found = self._wholes.get(view)
        if found is None:
            now = self._now()
            text = self._edition.whole(now, view, can_sign_out=self._needs_token)
            found = _kept(self._wholes, view, body_of(text))
        return found

    def news(self, after: str, view: View = ANY_VIEW) -> Body:
        """What is new to a page that shows another edition."""
        seen, now = self._edition.last_seen(after), self._now()
        if not 0 <= now - self._told_at < _SAME_SECONDS:  # they say what time it is
            self._news, self._told_at = {}, now
        found = self._news.get((seen, view))
        if found is None:
            text = self._edition.news(seen, now, view)
            found = _kept(self._news, (seen, view), body_of(text))
        return found

    def _see(self, service: Service) -> Edition:
        self._version = service.state.data_version()  # before: what comes meanwhile is seen later
        seen: Counts | Overview
        if service.kind.counts_types:
            seen = count(service, None)
            sections = sections_of_counts(seen)
            figures = [(each.held, each.capacity, each.waiting) for each in seen.types]
        else:
            seen = admin.look(service)
            sections = sections_of(seen, self._histories(service, seen))
            figures = [(each.held, each.capacity, len(each.queue)) for each in seen.pools]
        return self._edition.succeeded_by(
            title=f"{totals(figures)} · leasectl",
            backend=seen.backend,
            problem="",
            sections=sections,
        )

    def _histories(self, service: Service, overview: Overview) -> Mapping[str, PoolHistory]:
        with contextlib.suppress(LeaseError):  # what is now is to be seen all the same
            if self._history is None:
                self._history = History(service.events)
            return self._history.of_pools(overview.pools, overview.at)
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
