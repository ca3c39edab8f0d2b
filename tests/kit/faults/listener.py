"""A listening socket on loopback that can be closed and opened again, always on the same port."""

from __future__ import annotations

import asyncio
import socket
from typing import Callable

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
        """Refuse connections, those included that the kernel took and nobody has seen yet."""
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
    """Have a port of loopback, 0 for one that is free; who wants to listen there binds it too."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setblocking(False)
    bound.bind(("127.0.0.1", port))
    return bound
