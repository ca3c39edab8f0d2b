"""Makes the page's editions: looks at the pools, and tells whether there may be more to see."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping

from leasectl.backends.kinds import kind_of
from leasectl.engines.event_log import EventWatch
from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.pools.admin import PoolService
from leasectl.pools.counted import Counts, count
from leasectl.pools.series import Series
from leasectl.pools.shown import Overview
from leasectl.server.page.counts import sections_of_counts, totals_of_counts
from leasectl.server.page.edition import Body, Edition, body_of
from leasectl.server.page.history import History
from leasectl.server.page.sections import sections_of, totals
from leasectl.typed.hints import Callable

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
        """Tell whether somebody has changed the records since the last look."""
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
        if kind_of(service.backend_url).counted_by:
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
            if kind_of(service.backend_url).remote:
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
