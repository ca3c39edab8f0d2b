"""A server whose backend was restored from an older copy: its events' numbers begin again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from leasectl.server.metrics import LossWatch
from leasectl.server.page.history import History
from leasectl.state.event import Event, EventFilter, Missed


class RestoredLog:
    """As `EventLog`, with the events that a test puts there."""

    def __init__(self, *events: Event) -> None:
        self.events = list(events)

    def read(
        self, wanted: EventFilter, *, after: int = 0, missed: Callable[[Missed], None] | None = None
    ) -> Iterator[Event]:
        last = max(event.number for event in self.events)
        if after > last and missed is not None:
            missed(Missed(None, None, last, is_restored=True))
        yield from (event for event in self.events if event.number > after)

    def watch(self) -> Any:
        readable, self.writable = os.pipe()
        return SimpleNamespace(fd=readable, clear=lambda: 0, close=lambda: os.close(readable))


def lost(number: int, name: str) -> Event:
    return Event(number, 1000.0, "lost", "T", (name,), holder_identity="job")


def test_late_release_after_a_restore_is_told_by_the_events_since() -> None:
    log = RestoredLog(lost(90, "a"))
    told: list[str] = []
    notices = SimpleNamespace(tell=lambda _, text: told.append(text))
    service = SimpleNamespace(events=log, clock=SimpleNamespace(wall=lambda: 1000.0))

    async def serve() -> None:
        watch = LossWatch(cast(Any, service), cast(Any, notices))
        watch.open()
        log.events = [lost(9, "b")]
        assert [watch.tell_late(name) for name in ("a", "b")] == [False, True]
        log.events.append(lost(10, "c"))
        assert watch.tell_late("c")
        watch.close()
        os.close(log.writable)

    asyncio.run(serve())
    assert "has lost c" in told[1]


def test_history_after_a_restore_is_read_again() -> None:
    log = RestoredLog(Event(90, 900.0, "queued", "T", ticket=1))
    history = History(cast(Any, log))
    history.of_pools([], 1000.0)
    log.events = [Event(9, 990.0, "queued", "U", ticket=1)]
    history.of_pools([], 1020.0)
    assert list(history._pools) == ["U"]
