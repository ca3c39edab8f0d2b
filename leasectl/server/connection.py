"""One client's connection: when the client goes away, and whether its answer has arrived.

As Go's net/http has it: the end of what a client sends (it closed, or only half-closed) is the end
of its request, but not of the connection, so that an answer still reaches who has half-closed.
uvicorn would close both halves.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol

from leasectl.http.connection import KEEP_ALIVE
from leasectl.server.delivery import GONE, TcpState, has_arrived, look_at
from leasectl.system.backoff import Backoff, Pauses
from leasectl.typed.hints import Any

# Where a request's scope has its connection.
SCOPE_KEY = "leasectl.connection"

# A client that vanished is noticed after a minute, while it waits or when it is answered.
_SOCKET_OPTIONS = (*KEEP_ALIVE, (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000))
# How long a request may take to come in.
REQUEST_SECONDS = 30.0
_LOOKS = Backoff(first_seconds=0.001, longest_seconds=0.25)
# An acknowledged answer counts as read when the client closes in good order, sends something, or
# has not reset the connection for so long: whoever is killed with the answer unread resets it.
_ALIVE_SECONDS = 0.25
_ORIGIN = re.compile("https?://[^/]*", re.IGNORECASE)  # RFC 9112, 3.2.2


def _leave_out_origin(scope: Any) -> None:
    """Have a whole URL, as a client sends it that takes us for its proxy, be a path as ever."""
    origin = _ORIGIN.match(scope.get("path", ""))
    if origin is not None:
        scope["path"] = scope["path"][origin.end() :] or "/"


class ClientConnection(H11Protocol):
    """uvicorn's connection, open as long as one half of it is.

    Attributes:
        gone: Done when the client has sent the end of its half, or the connection was lost.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope[SCOPE_KEY] = self
            _leave_out_origin(scope)
            await inner(scope, receive, send)

        self.app = app
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self._too_late: asyncio.TimerHandle | None = None
        self._stirred = asyncio.Event()
        self._at_the_end: TcpState | None = None
        self._was_reset = False

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        sock = transport.get_extra_info("socket")
        for option in _SOCKET_OPTIONS:
            with contextlib.suppress(OSError):
                sock.setsockopt(*option)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        self._stirred.set()
        super().data_received(data)
        if self._is_request_whole():
            self._expect_nothing()
        elif self._too_late is None:
            self._expect_request()

    def eof_received(self) -> bool:  # type: ignore[override]
        self._note_gone()
        if self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False  # there won't be another request
        return True  # the half that we write to stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._was_reset = exc is not None
        with contextlib.suppress(OSError):
            self._at_the_end = look_at(self.transport.get_extra_info("socket"))
        self._note_gone()
        super().connection_lost(exc)

    def _is_request_whole(self) -> bool:
        # Between two requests this is the one before, answered.
        return self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)

    def _expect_request(self) -> None:
        """End the connection unless a request is whole in time: who waits for an answer may wait,
        who keeps us waiting for the question may not, however often a byte of it comes."""
        self._too_late = self.loop.call_later(REQUEST_SECONDS, self._end_late)

    def _expect_nothing(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None

    def _end_late(self) -> None:
        self._too_late = None
        if self.flow.read_paused or self.conn.they_are_waiting_for_100_continue:
            self._expect_request()  # it is we who don't want to have the rest of it
        else:
            self.transport.close()

    def _note_gone(self) -> None:
        self._stirred.set()
        if not self.gone.done():
            self.gone.set_result(None)

    # ---- what answers are sent by

    def look(self) -> TcpState:
        """How the connection is, or was at its end."""
        if self._at_the_end is None:
            with contextlib.suppress(OSError):
                return look_at(self.transport.get_extra_info("socket"))
        return self._at_the_end or GONE

    async def has_delivered(self) -> bool:
        """Wait until it is known what became of the answer that was just written."""
        self._stirred.clear()
        pauses = Pauses(_LOOKS)
        while True:
            buffered = 0 if self._at_the_end else self.transport.get_write_buffer_size()
            arrived = has_arrived(self.look(), buffered=buffered)
            if arrived is not None:
                return arrived and await self._is_read()
            await self._stir_or(pauses.next())

    async def _is_read(self) -> bool:
        """Tell whether what was acknowledged was read as well, as far as that shows."""
        half_closed = self.gone.done()
        if not half_closed and self._is_last():
            with contextlib.suppress(OSError):
                # For clients that read to the end, whatever the answer's head says.
                self.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        until = self.loop.time() + _ALIVE_SECONDS
        while not self._stirred.is_set() and self.loop.time() < until:
            await self._stir_or(_ALIVE_SECONDS / 10 if half_closed else _ALIVE_SECONDS)
            # After the end of the client's half, nobody tells of a reset.
            if half_closed and self.look().closed:
                return False
        return not self._was_reset

    def _is_last(self) -> bool:
        """Tell whether the client has said that it won't ask again on this connection."""
        said = [value.lower() for name, value in self.headers if name == b"connection"]
        if self.scope["http_version"] == "1.0":
            return b"keep-alive" not in said
        return b"close" in said

    async def _stir_or(self, seconds: float) -> None:
        """Sleep, at most until the client does something."""
        if self._stirred.is_set():
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), seconds)
