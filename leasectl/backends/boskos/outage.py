"""For how long a Boskos is asked again that doesn't answer, or only that something went wrong."""

from __future__ import annotations

from leasectl.backends.unanswered import trying_again
from leasectl.errors import BackendUnreachable
from leasectl.system.clock import Clock
from leasectl.typed.hints import Callable

# That nobody answers at an address is most likely wrong with the address.
_NEVER_THERE_SECONDS = 10.0
# One that has answered comes back, as a rule: its pod was moved, or its own server was away.
_AWAY_SECONDS = 60.0


class Outage:
    """What has failed in a row, from the first request on.

    Args:
        url: Of the server.
        warn: Called with a line for people.
        clock: Where times come from.

    Attributes:
        was_there: It has answered at least once.
        failure: What failed last; None as long as it works.
    """

    def __init__(self, url: str, warn: Callable[[str], None], *, clock: Clock) -> None:
        self.was_there = False
        self.failure: BackendUnreachable | None = None
        self._url = url
        self._warn = warn
        self._clock = clock
        self._since: float | None = None

    def note(self, failure: BackendUnreachable, until: float | None) -> None:
        """Note a failure.

        Args:
            failure: What it is.
            until: Who asks goes on until then; None for as long as there is hope.

        Raises:
            BackendUnreachable: The same, when there is none.
        """
        now = self._clock.elapsed()
        if self._since is None:
            self._since = now
            self._warn(trying_again(failure))
        self.failure = failure
        longest = _AWAY_SECONDS if self.was_there else _NEVER_THERE_SECONDS
        if until is None and now >= self._since + longest:
            raise failure

    def is_over(self) -> None:
        """Note that it works."""
        self.was_there = True
        self.failure = None
        self._since = None
