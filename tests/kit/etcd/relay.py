"""Faults between a client and etcd: answers that get lost, connections that are cut."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Callable
from urllib.parse import urlsplit

# Called with the number of the request, from 1, and its path.
Hook = Callable[[int, str], object]

_REVISION = re.compile(rb'(?<="revision":")\d+')


_EXPECTING = b"Expect: 100-continue\r\n"


class Relay:
    """Passes requests on to one member.

    Args:
        endpoint: The member's address.

    Attributes:
        endpoint: The relay's own.
        paths: Of all requests so far.
        times: When they came, in the same order.
        before: Called before a request is passed on.
        after: Called when the answer is there; the answer is lost if it says so.
    """

    def __init__(self, endpoint: str) -> None:
        self.paths: list[str] = []
        self.times: list[float] = []
        self.before: Hook = _pass_on
        self.after: Hook = _pass_on
        self._server = (urlsplit(endpoint).hostname, urlsplit(endpoint).port or 80)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._frozen_at: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def listen(self, *, before: Hook | None = None, after: Hook | None = None) -> None:
        """Have these hooks called from here on, and no others."""
        self.before, self.after = before or _pass_on, after or _pass_on

    def cut(self) -> None:
        """End all connections; new ones end at once."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                _shut(each)

    def mend(self) -> None:
        self._is_cut = False

    def freeze(self, revision: int) -> None:
        """Be from here on as a member whose disk hangs, after it has applied a revision.

        What it is asked is done, by the others. It only doesn't get to know: it answers nothing
        but keep-alives, with its own revision, and its watches tell nothing.
        """
        self._frozen_at = revision

    def close(self) -> None:
        self.cut()
        _shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            server = socket.create_connection(self._server)
            with server:
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    if self._is_cut:
                        return
                    self._open |= {client, server}
                try:
                    self._relay(client, server)
                finally:
                    with self._lock:
                        self._open -= {client, server}
                    _shut(client)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        # Requests are never pipelined, so whatever comes back answers the last one.
        last = [(0, "")]
        threading.Thread(target=self._answer, args=(client, server, last), daemon=True).start()
        reader = client.makefile("rb")
        while True:
            head = b"".join(itertools.takewhile(lambda line: line not in (b"", b"\r\n"), reader))
            if not head:
                break
            if _EXPECTING in head:
                head = head.replace(_EXPECTING, b"")
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            sizes = [line for line in head.lower().split(b"\r\n") if b"content-length:" in line]
            body = reader.read(int(sizes[0].split(b":")[1])) if sizes else b""
            path = head.split(b" ")[1].decode()
            with self._lock:
                self.paths.append(path)
                self.times.append(time.monotonic())
                last[0] = (len(self.paths), path)
            self.before(*last[0])
            server.sendall(head + b"\r\n" + body)
        _shut(server)

    def _answer(
        self, client: socket.socket, server: socket.socket, last: list[tuple[int, str]]
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = server.recv(65536)
                if not data or self.after(*last[0]):
                    break
                client.sendall(self._seen(last[0][1], data))
        _shut(client)
        _shut(server)

    def _seen(self, path: str, data: bytes) -> bytes:
        """What of an answer gets through, in its length."""
        if self._frozen_at is None:
            return data
        if path != "/v3/lease/keepalive":
            return b""
        revision = str(self._frozen_at).encode()
        return _REVISION.sub(lambda found: revision.rjust(len(found[0]), b"0"), data)


@contextlib.contextmanager
def relay(endpoint: str) -> Iterator[Relay]:
    """A relay for as long as the block lasts."""
    between = Relay(endpoint)
    try:
        yield between
    finally:
        between.close()


def _pass_on(_number: int, _path: str) -> bool:
    return False


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
