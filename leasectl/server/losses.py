"""What clients have lost: the server behind us took it away, and the keeper has noticed.

A client can't be told, as the protocol has no words for it. So its operator is, and whoever looks
at the metrics; and a release that comes too late is done, as it would be a moment sooner.
"""

from __future__ import annotations

import asyncio

from leasectl.engines.event_log import EventWatch
from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.server.metrics import Meter
from leasectl.server.notices import Notices
from leasectl.state.event import Event, EventFilter

# For so long a release may come too late; so long are events kept at the least, as a rule.
_REMEMBERED_SECONDS = 24 * 3600.0


class LossWatch:
    """Follows the events of the leases that are served.

    Args:
        service: On the state directory and backend that are served.
        meter: Told of what was lost.
        notices: Likewise.
    """

    def __init__(self, service: Service, meter: Meter, notices: Notices) -> None:
        self._service = service
        self._meter = meter
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
            f"{name} was released, and wasn't leased to {event.holder_identity} any more: "
            f"{event.reason}",
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
        for event in self._service.events.read(EventFilter(since=since), after=self._last):
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

    def _tell(self, event: Event) -> None:
        self._meter.lost(event.type, len(event.names))
        names = " ".join(event.names)
        self._notices.tell(
            event.number, f"{event.holder_identity} has lost {names}: {event.reason}"
        )
