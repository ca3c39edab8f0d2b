"""Faults between a client and a server: answers that get lost, connections that are cut."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple
from urllib.parse import urlsplit

from tests.kit.certificates import Certificate

# Called with the number of the request, from 1, and its path.
Hook = Callable[[int, str], object]

_REVISION = re.compile(rb'(?<="revision":")\d+')
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

# Whatever comes after the first piece of such a request belongs to it.
_GOES_ON = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)

_EXPECTING = b"Expect: 100-continue\r\n"


class Tls(NamedTuple):
    """How a relay can read what goes through it where both ends speak TLS.

    Args:
        certificate: What it shows to clients.
        ca_file: Of the CA that it believes the server by.
    """

    certificate: Certificate
    ca_file: str


class Relay:
    """Passes requests on to one server.

    Args:
        endpoint: The server's address.
        tls: With none, both ends do without.

    Attributes:
        endpoint: The relay's own address.
        methods: Of all requests so far: GET, POST ...
        paths: Theirs, in the same order.
        times: When they came.
        before: Called before a request is passed on.
        after: Called when the answer is there; the answer is lost if it says so.
        instead: Called before a request would be passed on; what it says is answered, if anything.
        changed: Called with each piece of an answer as it comes; what it returns is passed on.
        part: Called before a request is passed on; so much of it is, from 0 to 1. Where that isn't
            all, the server's connection is closed for what comes after, and it may answer to that.
        awaits_ends: Pass no request on before its end, as some proxies do.
    """

    awaits_ends = False

    def __init__(self, endpoint: str, tls: Tls | None = None) -> None:
        self.methods: list[str] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.before: Hook = _pass_on
        self.after: Hook = _pass_on
        self.instead: Callable[[int, str], bytes | None] = lambda number, path: None
        self.part: Callable[[int, str], float] = lambda number, path: 1
        self.changed: Callable[[int, bytes], bytes] = lambda number, data: data
        self._server = (urlsplit(endpoint).hostname, urlsplit(endpoint).port or 80)
        self._to_clients = self._to_server = None
        if tls:
            self._to_clients = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._to_clients.load_cert_chain(*tls.certificate)
            self._to_server = ssl.create_default_context(cafile=tls.ca_file)
        self._lock = threading.Lock()
        # Both ends of each connection, with what was asked last on it.
        self._open: dict[socket.socket, str] = {}
        self._is_cut = False
        self._frozen_at: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if tls else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def listen(self, *, before: Hook | None = None, after: Hook | None = None) -> None:
        """Call these hooks from here on, and no others."""
        self.before, self.after = before or _pass_on, after or _pass_on

    def cut(self) -> None:
        """End all connections; new ones end at once."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                _shut(each)

    def mend(self) -> None:
        self._is_cut = False

    def end(self, which: Callable[[str], object]) -> int:
        """End the connections on which a path was asked for last; say how many it were."""
        with self._lock:
            ended = [each for each, path in self._open.items() if path and which(path)]
            for each in ended:
                _shut(each)
        return len(ended) // 2

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
        with contextlib.suppress(OSError), contextlib.ExitStack() as ends:
            ends.enter_context(client)
            server = ends.enter_context(socket.create_connection(self._server))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._to_clients and self._to_server:
                client = ends.enter_context(_server_side(self._to_clients, client))
                server = ends.enter_context(_client_side(self._to_server, server))
            with self._lock:
                if self._is_cut:
                    return
                self._open.update({client: "", server: ""})
            try:
                for end in (client, server):
                    if isinstance(end, ssl.SSLSocket):
                        end.do_handshake()
                self._relay(client, server)
            finally:
                with self._lock:
                    del self._open[client], self._open[server]
                # Before they are closed: whoever forked has copies of them.
                _shut(client)
                _shut(server)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        # One thread for both directions: TLS has a state that two would break.
        poller = select.poll()
        for end in (client, server):
            poller.register(end, select.POLLIN)
        # Requests are never pipelined, so whatever comes back answers the last one.
        number, path, unread, goes_on = 0, "", b"", False
        while True:
            spoken = {fd for fd, _ in poller.poll()}
            if server.fileno() in spoken and (data := _read(server)) is not None:
                if not data or self.after(number, path):
                    return
                client.sendall(self.changed(number, self._seen(path, data)))
            if client.fileno() in spoken and (data := _read(client)) is not None:
                if not data:
                    return
                if goes_on:
                    server.sendall(data)
                    continue
                unread += data
                if _EXPECTING in unread:
                    unread = unread.replace(_EXPECTING, b"")
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                if _is_whole(unread, awaits_end=self.awaits_ends):
                    number, path = self._note(unread, client, server)
                    goes_on = bool(_GOES_ON.search(unread.partition(b"\r\n\r\n")[0]))
                    self.before(number, path)
                    said = self.instead(number, path)
                    part = self.part(number, path)
                    if said is None:
                        server.sendall(unread[: int(part * len(unread))])
                    else:
                        client.sendall(said)
                    if part < 1:
                        socket.socket.shutdown(server, socket.SHUT_WR)  # not TLS's
                    unread = b""

    def _note(
        self, request: bytes, client: socket.socket, server: socket.socket
    ) -> tuple[int, str]:
        """Write down what is asked, and return its number and its path."""
        method, path = request.decode("latin-1").split(" ", 2)[:2]
        with self._lock:
            self.methods.append(method)
            self.paths.append(path)
            self.times.append(time.monotonic())
            self._open.update({client: path, server: path})
            return len(self.paths), path

    def _seen(self, path: str, data: bytes) -> bytes:
        """What of an answer gets through, in its length."""
        if self._frozen_at is None:
            return data
        if path != "/v3/lease/keepalive":
            return b""
        revision = str(self._frozen_at).encode()
        return _REVISION.sub(lambda found: revision.rjust(len(found[0]), b"0"), data)


@contextlib.contextmanager
def relay(endpoint: str, tls: Tls | None = None) -> Iterator[Relay]:
    """A relay for as long as the block lasts."""
    between = Relay(endpoint, tls)
    try:
        yield between
    finally:
        between.close()


def _pass_on(_number: int, _path: str) -> bool:
    return False


def _server_side(context: ssl.SSLContext, raw: socket.socket) -> ssl.SSLSocket:
    return context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)


def _client_side(context: ssl.SSLContext, raw: socket.socket) -> ssl.SSLSocket:
    host = raw.getpeername()[0]
    return context.wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False)


def _read(end: socket.socket) -> bytes | None:
    """What has come; b"" at the end, None if it was TLS's own or not all of a record."""
    end.setblocking(False)
    try:
        return end.recv(65536)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    finally:
        end.setblocking(True)


def _is_whole(request: bytes, *, awaits_end: bool) -> bool:
    """Whether a request has come up to its end, or one that goes on up to the end of a piece."""
    head, blank, body = request.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if _GOES_ON.search(head):
        return body.endswith(b"\r\n0\r\n\r\n" if awaits_end else b"\r\n")
    return bool(blank) and len(body) >= (int(length[1]) if length else 0)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not SSLSocket's own, which another thread may be in the middle of.
        socket.socket.shutdown(end, socket.SHUT_RDWR)
