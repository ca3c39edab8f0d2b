"""The way from an API server to its etcd, on which what etcd says may come late."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import Callable
from urllib.parse import urlsplit


class Wire:
    """Passes bytes on, whatever they mean.

    Args:
        endpoint: The address of etcd.

    Attributes:
        endpoint: Its own address.
        late_seconds: How much later what etcd says from here on arrives: the server's cache and
            its watches lag by so much, and its consistent reads take longer by so much.
    """

    def __init__(self, endpoint: str) -> None:
        self.late_seconds = 0.0
        self._etcd = (urlsplit(endpoint).hostname, urlsplit(endpoint).port or 80)
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        _beside(self._accept)

    def close(self) -> None:
        for each in (self._listener, *list(self._open)):
            _shut(each)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            server, _ = self._listener.accept()
            with contextlib.suppress(ConnectionRefusedError):
                _beside(self._connect, server, socket.create_connection(self._etcd))

    def _connect(self, server: socket.socket, etcd: socket.socket) -> None:
        for end in (server, etcd):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(end)
        said: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        ways = [
            _beside(self._pass_on, server, etcd),
            _beside(self._hear, etcd, said),
            _beside(self._tell, said, server),
        ]
        for way in ways:
            way.join()
        for end in (server, etcd):  # a server that starts again and again makes hundreds
            self._open.discard(end)
            end.close()

    def _pass_on(self, server: socket.socket, etcd: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                etcd.sendall(data)
        _shut(etcd)

    def _hear(self, etcd: socket.socket, said: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"."
        while data:
            try:
                data = etcd.recv(65536)
            except OSError:
                data = b""
            said.put((time.monotonic() + self.late_seconds, data))

    def _tell(self, said: queue.SimpleQueue[tuple[float, bytes]], server: socket.socket) -> None:
        while True:
            due, data = said.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            with contextlib.suppress(OSError):  # the last of it ends both
                server.sendall(data)
        _shut(server)


def _beside(work: Callable[..., None], *arguments: object) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(OSError):
            work(*arguments)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
