"""What the server's operator is told of: what goes wrong, but not anew for every client."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    LeaseError,
    NotAllowed,
    StateUnwritable,
)
from leasectl.system.clock import Clock
from leasectl.typed.hints import Callable

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
