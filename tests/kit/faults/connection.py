"""Sockets of the server: the listener, the connection of a client, and one request under way."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Callable

from tests.kit.faults.http1 import BadRequest, Request, parse_body, parse_head
from tests.kit.faults.script import Fault


class Connection(asyncio.Protocol):
    """Whole requests out, bytes in, and what became of the client.

    Args:
        on_open: Called with the connection when it is there.

    Attributes:
        ended: The client sent its end of file.
        lost: The connection is gone for good, by either side or by a reset.
        on_change: Called whenever `client_is_gone` may have changed.
    """

    def __init__(self, on_open: Callable[[Connection], None]) -> None:
        self._on_open = on_open
        self._buffer = b""
        self._watches = True
        self._arrived = asyncio.Event()
        self.ended = False
        self.lost = False
        self.on_change: Callable[[], None] | None = None

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def eof_received(self) -> bool:
        self.ended = True
        self._changed()
        return True  # The half that we write to stays open.

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._changed()

    # ---- what the server calls

    @property
    def client_is_gone(self) -> bool:
        """What ends the context of the request that is being handled."""
        return self._watches and not self._buffer and (self.ended or self.lost)

    async def read_request(self) -> Request | None:
        """The next whole request; None when the client sends no more.

        Raises:
            BadRequest: What it sent is none.
        """
        continued = False
        while True:
            head = parse_head(self._buffer)
            if head is not None:
                found = parse_body(head, self._buffer)
                if found is not None:
                    body, size = found
                    self._buffer = self._buffer[size:]
                    self._watches = True
                    return head.request._replace(body=body)
                if head.expects_continue and not continued:
                    self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    continued = True
            if self.ended or self.lost:
                if self._buffer and not self.lost:
                    raise BadRequest("the request ends too soon")
                return None
            self._arrived.clear()
            await self._arrived.wait()

    def leave_body_unread(self, request: Request) -> None:
        """Say that this request's handler doesn't read the body, if there is one."""
        self._watches = not request.body

    @property
    def can_be_written(self) -> bool:
        """Whether there is a connection to send on; not that anything will arrive."""
        return not self.lost and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send, if there is a connection to send on."""
        if self.can_be_written:
            self._transport.write(data)

    def close(self) -> None:
        """End it in good order, after what was written."""
        self._transport.close()

    def reset(self) -> None:
        """End it with RST; what was written and not yet read is lost."""
        sock = self._transport.get_extra_info("socket")
        if not self.lost:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _changed(self) -> None:
        self._arrived.set()
        if self.on_change is not None:
            self.on_change()


_BACKLOG = 1024


class Listener:
    """Takes connections while it is open.

    A second socket, bound and never listening, keeps the port from everybody else meanwhile:
    connections to it are refused.

    Args:
        protocol: Makes what handles a connection.
        port: By default one that is free.
    """

    def __init__(self, protocol: Callable[[], asyncio.BaseProtocol], port: int = 0) -> None:
        self._protocol = protocol
        self._reserved = bind(port)
        self.port: int = self._reserved.getsockname()[1]
        self._accepting: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self) -> None:
        """Listen; from the return of this on, connections succeed."""
        self._socket = bind(self.port)
        self._socket.listen(_BACKLOG)
        self._accepting = asyncio.ensure_future(self._accept(self._socket))

    def close(self) -> None:
        """Refuse connections, those included that the kernel took and that are not accepted yet."""
        if self._socket is not None and self._accepting is not None:
            self._accepting.cancel()
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
                await loop.connect_accepted_socket(self._protocol, accepted)
            except OSError:
                # That client has gone already. Or descriptors are short, for a moment.
                await asyncio.sleep(0.01)


def bind(port: int) -> socket.socket:
    """Reserve a port of loopback, 0 for a free one; a listener there binds it too."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setblocking(False)
    bound.bind(("127.0.0.1", port))
    return bound


class Exchange:
    """A request, its connection, the fault it gets, and the wait it is in.

    Args:
        number: Among all requests, from 1.
        connection_number: Among all connections, from 1.

    Attributes:
        names: What was granted so far.
    """

    def __init__(
        self,
        number: int,
        connection_number: int,
        connection: Connection,
        request: Request,
        fault: Fault | None,
    ) -> None:
        self.number = number
        self.connection_number = connection_number
        self.connection = connection
        self.request = request
        self.fault = fault
        self.names: list[str] = []
        self._since = time.monotonic()
        self._stirred = asyncio.Event()
        connection.on_change = self.stir

    def fault_is(self, *names: str) -> bool:
        return self.fault is not None and self.fault.name in names

    def stir(self) -> None:
        """Wake it, to look again at whatever it waits for."""
        self._stirred.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Sleep until stirred, at most this long."""
        self._stirred.clear()
        try:
            await asyncio.wait_for(self._stirred.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def show(self) -> dict[str, object]:
        """What the state says of it."""
        return {
            "request": self.number,
            "connection": self.connection_number,
            "target": self.request.target,
            "idempotency_key": self.request.headers.get("idempotency-key"),
            "got": list(self.names),
            "since": round(self._since, 6),
        }
