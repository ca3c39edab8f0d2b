"""Tell clients that wait of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from leasectl.errors import Cancelled, LeaseError
from leasectl.leases.service import Service
from leasectl.server.metrics import Notices
from leasectl.server.sleeps import follow_events

if TYPE_CHECKING:
    from leasectl.state.event import Event

_AGAIN_SECONDS = 1.0
_CLOSED = "the server is shutting down"

Do = Callable[[Callable[[Service], Any]], Awaitable[Any]]


class EventNews:
    """The events of what is served, read once for all clients that wait.

    Args:
        do: Runs a step on the service.
        notices: Told of what fails.
    """

    def __init__(self, do: Do, notices: Notices) -> None:
        self._do = do
        self._notices = notices
        self._stop: Callable[[], None] | None = None
        self._opening = asyncio.Lock()
        self._reading: asyncio.Future[None] | None = None
        self._waiting: dict[asyncio.Future[tuple[int, Sequence[Event]]], str | None] = {}
        self._is_closed = False
        self.last = 0

    async def wait(
        self, after: int, handle_id: str | None, *, seconds: float, gone: asyncio.Future[None]
    ) -> tuple[int, Sequence[Event] | None]:
        """Wait for events with a larger number; or for a change without one, if not of a handle.

        Args:
            after: The number.
            handle_id: Only events of that handle; None for all.
            seconds: How long.
            gone: Done when the client no longer waits.

        Returns:
            The number of the last event that was looked at, and some of them; None for them if
            nothing has changed.

        Raises:
            Cancelled: The server is about to end.
        """
        if self._is_closed:
            raise Cancelled(_CLOSED)
        await self._open()
        future: asyncio.Future[tuple[int, Sequence[Event]]]
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = handle_id  # before the read, which events may overtake
        try:
            if after < self.last:
                found = await self._read(after)
                if _of(handle_id, found):
                    return found[-1].number, _of(handle_id, found)
            await asyncio.wait((future, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[future]
        if self._is_closed:
            raise Cancelled(_CLOSED)
        return future.result() if future.done() else (max(self.last, after), None)

    def close(self) -> None:
        """Watch no longer, and end all waits: the server's end waits for their answers."""
        self._is_closed = True
        for future in self._waiting:
            future.cancel()
        if self._stop is not None:
            self._stop()
            self._stop = None

    async def _open(self) -> None:
        async with self._opening:
            if self._stop is None:
                # Its thread, if it has one, wakes the loop.
                watch = await self._do(lambda service: service.events.watch())
                try:
                    self.last = await self._do(lambda service: service.events.last_number())
                except BaseException:
                    watch.close()
                    raise
                self._stop = follow_events(watch, self._look)

    def _look(self) -> None:
        if self._stop is None:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._tell())
        else:
            self._reading.add_done_callback(lambda _: self._look_again())

    def _look_again(self) -> None:
        if self._reading is None or self._reading.done():
            self._look()

    async def _tell(self) -> None:
        try:
            new = await self._read(self.last)
        except LeaseError as error:
            self._notices.failed("reading events", error)
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._look_again)
            return
        if new:
            self.last = new[-1].number
        for future, handle_id in self._waiting.items():
            wanted = _of(handle_id, new)
            if not future.done() and (wanted or handle_id is None):
                future.set_result((self.last, wanted))

    async def _read(self, after: int) -> Sequence[Event]:
        events: Sequence[Event] = await self._do(
            lambda service: list(service.events.read(after=after))
        )
        return events


def _of(handle_id: str | None, events: Sequence[Event]) -> Sequence[Event]:
    if handle_id is None:
        return events
    return [each for each in events if each.handle.partition("/")[0] == handle_id]
