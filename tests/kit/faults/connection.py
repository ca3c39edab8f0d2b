"""One client's connection, and when its handler gets to know that the client is gone.

As in Go's net/http, where the end of what the client sends (it closed, or only half-closed) ends
the request's context, but not the connection: an answer is still written to the half that is open.
Go watches for that end only when nothing is left to be read before it. A request body that the
handler doesn't read, and a further request sent in advance, both hide it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Callable

from tests.kit.faults.http1 import BadRequest, Request, parse_body, parse_head


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
