"""The tries of a request, and the pause before the next."""

from __future__ import annotations

from leasectl.engines.kubernetes.api.access import Access
from leasectl.engines.kubernetes.api.refusals import (
    Busy,
    Failed,
    NotAuthenticated,
    NotPermitted,
)
from leasectl.errors import BackendUnreachable
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.text.durations import format_seconds

_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=0.5)
# For so long a server that doesn't let us in, and doesn't say that it is ready, may be starting.
_STARTING_SECONDS = 5.0


class Tries:
    """The tries of one request.

    Args:
        clock: Where times come from.
        start: When it began.
        until: When it has to end.
        limit: The same, where the server is busy and says when to come again.

    Attributes:
        is_renewed: Whether something else has been shown already than at first.
        refusal: What a server that may be starting has said last; None for none.
    """

    def __init__(self, clock: Clock, start: float, until: float, limit: float) -> None:
        self._clock = clock
        self._start = start
        self._until = until
        self._limit = limit
        self._pauses = Pauses(_BACKOFF)
        self.is_renewed = False
        self.refusal: NotAuthenticated | NotPermitted | None = None
        self._reason = ""

    def left(self) -> float:
        """How long it may still take, in seconds; 0 or less when it has to end."""
        return self._until - self._clock.elapsed()

    def may_be_starting(self) -> bool:
        """Whether it is too early to believe a server that doesn't let us in and isn't ready."""
        return self._clock.elapsed() - self._start < _STARTING_SECONDS and self.left() > 0

    def pause_after_busy(self, access: Access, refusal: Busy) -> float:
        """How long to wait; it doesn't count, unless somebody waits no longer than that.

        Raises:
            BackendUnreachable: Somebody does.
        """
        self._reason = f"it is busy ({refusal})"
        pause = refusal.retry_after_seconds
        if pause is None:
            return self.pause()
        now = self._clock.elapsed()
        if now + pause >= self._limit:
            raise BackendUnreachable(
                f"{access.server} is busy, and is to be asked again in {format_seconds(pause)}: "
                f"{refusal}"
            )
        self._until = min(self._limit, self._until + pause)
        return pause

    def pause_after(self, reason: NoAnswer) -> float:
        """How long to wait before who didn't answer is asked again, in seconds."""
        if not self._reason or str(reason) != NOT_IN_TIME:
            self._reason = str(reason)
        said = reason.retry_after_seconds if isinstance(reason, Failed) else None
        return self.pause() if said is None else min(said, max(0.0, self.left()))

    def pause(self) -> float:
        """How long to wait before the next try where nobody says, in seconds."""
        return min(self._pauses.next(), max(0.0, self.left()))

    def failure(self, access: Access) -> str:
        """All of it for people, and what to do next."""
        within = format_seconds(max(0.0, self._clock.elapsed() - self._start))
        said = f": {self._reason}" if self._reason and self._reason != NOT_IN_TIME else ""
        by_way_of = f" by way of {access.proxy}" if access.proxy_url else ""
        return (
            f"no answer from {access.server}{by_way_of} within {within}{said}; is it there, and is "
            f"{access.found} the right one?"
        )
