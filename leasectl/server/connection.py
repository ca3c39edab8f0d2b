"""Notice a client that goes away, and whether it received its answer."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import re
import socket
import struct
import sys
import termios
from typing import Any, NamedTuple

from starlette.requests import Request
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

from leasectl.http.http1 import KEEP_ALIVE
from leasectl.system.backoff import Backoff, Pauses

_TCP_CLOSE = 7
# tcpi_state is the first byte of struct tcp_info, in linux/tcp.h.
_STATE_BYTES = 1


class TcpState(NamedTuple):
    """A TCP connection at one instant.

    Args:
        closed: Reset by either side, or ended by both.
        pending: Bytes that were sent and not yet acknowledged.
    """

    closed: bool
    pending: int


GONE = TcpState(closed=True, pending=0)


def look_at(connection: socket.socket) -> TcpState:
    """Ask the kernel how a connection is; OSError when it is no longer open here."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _STATE_BYTES)[0]
    # SIOCOUTQ, see tcp(7), has the number of the terminals' TIOCOUTQ.
    (pending,) = struct.unpack("=i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    return TcpState(state == _TCP_CLOSE, pending)


def has_arrived(tcp: TcpState, *, buffered: int) -> bool | None:
    """Tell whether all that was written has arrived at the other side's kernel.

    Args:
        tcp: The connection now.
        buffered: Bytes that our kernel hasn't even been given.

    Returns:
        None while it is still on its way.
    """
    if tcp.closed:
        return False
    return None if tcp.pending or buffered else True


# Where a request's scope has its connection.
SCOPE_KEY = "leasectl.connection"
# Probes are answered however busy the server is.
HEALTH = "/healthz"

# A client that vanished is noticed after a minute, while it waits or when it is answered.
_SOCKET_OPTIONS = (*KEEP_ALIVE, (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000))
# How long a request may take to come in.
REQUEST_SECONDS = 30.0
_LOOKS = Backoff(first_seconds=0.001, longest_seconds=0.25)
# An acknowledged answer counts as read when the client closes in good order, sends something, or
# has not reset the connection for so long: whoever is killed with the answer unread resets it.
_ALIVE_SECONDS = 0.25
_LENGTHS = {b"content-length", b"transfer-encoding"}
_ORIGIN = re.compile("https?://[^/]*", re.IGNORECASE)  # RFC 9112, 3.2.2


def _leave_out_origin(scope: Any) -> None:
    """Reduce a whole URL, which a client sends to a proxy, to its path."""
    origin = _ORIGIN.match(scope.get("path", ""))
    if origin is not None:
        scope["path"] = scope["path"][origin.end() :] or "/"


class Room:
    """How many connections there may be, so that none lacks an open file.

    A *silent* connection has no whole request: it was only opened, is between two requests, or
    sends slowly. One too many ends the oldest silent one of the address that has most of them, so
    idle connections take no room from clients that wait, nor from ``/healthz``. A *busy* one waits
    for its answer; a request too many is told to come again later, except ``/healthz``.

    Args:
        most_busy: How many may be busy.
        most_silent: How many may be silent.
    """

    def __init__(self, most_busy: int = sys.maxsize, most_silent: int = sys.maxsize) -> None:
        self._most_busy = most_busy
        self._most_silent = most_silent
        self._busy: set[ClientConnection] = set()
        self._silent: dict[str, dict[ClientConnection, None]] = {}  # by address, oldest first
        self._silent_count = 0

    def note_silent(self, connection: ClientConnection) -> None:
        """Count a connection as silent, and end another if that is one too many."""
        self._busy.discard(connection)
        of_address = self._silent.setdefault(connection.address, {})
        if connection in of_address:
            return
        of_address[connection] = None
        self._silent_count += 1
        if self._silent_count > self._most_silent:
            most = max(self._silent.values(), key=lambda each: len(each))
            # What a client has sent, and wasn't read yet, may be its request.
            others = (each for each in most if each is not connection and not each.has_unread())
            oldest = next(others, None)
            if oldest is not None:
                self.forget(oldest)
                oldest.transport.abort()

    def note_busy(self, connection: ClientConnection) -> None:
        """Count a connection as busy."""
        self.forget(connection)
        self._busy.add(connection)

    def forget(self, connection: ClientConnection) -> None:
        """Count a connection no more."""
        self._busy.discard(connection)
        of_address = self._silent.get(connection.address, {})
        if connection in of_address:
            del of_address[connection]
            self._silent_count -= 1
            if not of_address:
                del self._silent[connection.address]

    def is_short(self) -> bool:
        """Tell whether more connections are busy than may be."""
        return len(self._busy) > self._most_busy


class ClientConnection(H11Protocol):
    """uvicorn's connection, open as long as one half of it is.

    Args:
        args: As uvicorn has them.
        room: Shared by all connections of a server; None: there is no limit.
        more: As uvicorn has them.

    Attributes:
        address: Of the client.
        gone: Done when the client has sent the end of its half, or the connection was lost.
    """

    def __init__(self, *args: Any, room: Room | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.address = ""
        self._room = room or Room()
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope[SCOPE_KEY] = self
            _leave_out_origin(scope)
            if {name for name, _ in scope["headers"]} >= _LENGTHS:
                # A proxy in between may see another request than this (RFC 9112, 6.1).
                scope["headers"].append((b"connection", b"close"))
            if scope["path"] != HEALTH and self._room.is_short():
                self._room.forget(self)  # it is about to end
                await service_unavailable(scope, receive, send)
            else:
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
        self.address = self.client[0] if self.client else ""
        self._expect_request()
        self._room.note_silent(self)

    def data_received(self, data: bytes) -> None:
        self._stirred.set()
        super().data_received(data)
        if self._is_request_whole():
            self._expect_nothing()
            self._room.note_busy(self)
        elif self._too_late is None:
            self._expect_request()

    def eof_received(self) -> bool:  # type: ignore[override]
        self._note_gone()
        if self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False  # there won't be another request
        return True  # the half that we write to stays open

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not (self.transport.is_closing() or self._is_request_whole()):
            self._room.note_silent(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._room.forget(self)
        self._was_reset = exc is not None
        with contextlib.suppress(OSError):
            self._at_the_end = look_at(self.transport.get_extra_info("socket"))
        self._note_gone()
        super().connection_lost(exc)

    def has_unread(self) -> bool:
        """Tell whether the client has sent something that wasn't read yet."""
        unread = array.array("i", [0])
        with contextlib.suppress(OSError):
            sock = self.transport.get_extra_info("socket")
            fcntl.ioctl(sock.fileno(), termios.FIONREAD, unread)
        return unread[0] > 0

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


def connection_of(request: Request) -> ClientConnection:
    """Return the connection that a request came on."""
    connection: ClientConnection = request.scope[SCOPE_KEY]
    return connection
