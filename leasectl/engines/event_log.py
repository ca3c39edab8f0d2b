"""The interface for reading events.

Events are written by the steps that change something, in the same transaction. So there is no way
to write one here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed


class EventWatch(Protocol):
    """Tells that there may be more events.

    Attributes:
        fd: Readable when that may be so.
    """

    @property
    def fd(self) -> int: ...

    def clear(self) -> int:
        """Get ready for the next event; the caller has to read again afterwards.

        Returns:
            Events that have come since the last reading have larger numbers; 0 if that isn't known.
        """

    def close(self) -> None:
        """Watch no longer."""


class EventLog(Protocol):
    """The events of an engine's pools, in the order in which they happened.

    Attributes:
        remark: What to tell the user after the events were read; empty for nothing.
    """

    @property
    def remark(self) -> str: ...

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        """The events that are still kept, the oldest first.

        Args:
            wanted: Which of them.
            after: Only those with a larger number than this.
            missed: Called when some with a larger number aren't kept any more, wanted or not; or
                when the store was restored, and events have smaller numbers from now on.
        """

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        """The last events, the newest first: read from the end, and no further than need be.

        Args:
            wanted: Which of them.
            number: At most so many.
            only_recent: Without much ado: of what is kept for long, perhaps only the newer part is
                looked at.
        """

    def last_number(self) -> int:
        """The number of the last event there was; 0 for none."""

    def watch(self) -> EventWatch:
        """Watch for more events from now on; the caller reads once more afterwards."""
