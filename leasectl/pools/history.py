"""What happened on a backend: its events, and those that are still to come."""

from __future__ import annotations

from collections.abc import Iterator

from leasectl.leases.service import Service
from leasectl.state.event import ALL_EVENTS, Event, EventFilter


def events_of(
    service: Service, wanted: EventFilter = ALL_EVENTS, *, after: int = 0
) -> Iterator[Event]:
    """The events of the chosen backend that are still kept, the oldest first.

    Where a backend has no pools of its own, they are those of this state directory's handles on it.

    Args:
        service: On the backend.
        wanted: Which of them.
        after: Only those with a larger number than this.

    Raises:
        NotSupported: Nobody writes them down there.
    """
    return service.events.read(wanted, after=after)
