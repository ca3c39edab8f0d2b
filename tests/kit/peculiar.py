"""Servers that answer in ways of their own: slowly, without end, not at all."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import BinaryIO, Callable, Protocol

import pytest

from tests.kit.waits import PATIENCE_SECONDS, join

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

# Of a machine that has other things to do, too.

Conversation = Callable[[socket.socket], None]


class Peculiar:
    """A server that does to each connection what it is told, once a request has come.

    Args:
        conversation: What it does.
        context: For TLS; None for none.

    Attributes:
        connections: How many there were.
        asked: Set once a request has come.
        ended: Set once a connection has ended.
    """

    def __init__(self, conversation: Conversation, context: ssl.SSLContext | None = None) -> None:
        self._conversation = conversation
        self._context = context
        self.connections = 0
        self.asked = threading.Event()
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if context is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
            reader = client.makefile("rb")
            while _read_request(reader):
                self.asked.set()
                self._conversation(client)
        self.ended.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # this ends accept(), which close() doesn't
        self._listener.close()


class Deaf:
    """A server that is sent what its kernel takes, and hears nothing of it.

    Attributes:
        address: Where it is.
        told: Set once something has been sent to it.
    """

    def __init__(self) -> None:
        self.told = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connection = self._listener
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._watch = threading.Thread(target=self._see, daemon=True)
        self._watch.start()

    def _see(self) -> None:
        self._connection, _ = self._listener.accept()
        self._connection.recv(1, socket.MSG_PEEK)
        self.told.set()

    def all_told(self) -> bytes:
        """Everything that a client sent until it was gone."""
        join(self._watch)
        self._connection.settimeout(PATIENCE_SECONDS)
        return b"".join(iter(lambda: self._connection.recv(4096), b""))

    def __enter__(self) -> Deaf:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._listener.close()


class StartPeculiar(Protocol):
    """Starts one such server."""

    def __call__(
        self, conversation: Conversation, context: ssl.SSLContext | None = None
    ) -> Peculiar: ...


@pytest.fixture
def serve() -> Iterator[StartPeculiar]:
    """Starts such servers, each on a port of its own."""
    servers: list[Peculiar] = []

    def start(conversation: Conversation, context: ssl.SSLContext | None = None) -> Peculiar:
        servers.append(Peculiar(conversation, context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def _read_request(reader: BinaryIO) -> bool:
    length = 0
    for line in iter(reader.readline, b"\r\n"):
        if not line:
            return False
        name, _, value = line.lower().partition(b":")
        length = int(value) if name == b"content-length" else length
    return len(reader.read(length)) == length


def drip(client: socket.socket, data: bytes) -> None:
    """Send byte after byte, so that no read ever waits long."""
    for n in range(len(data)):
        client.sendall(data[n : n + 1])
        time.sleep(0.05)


def drip_head(client: socket.socket) -> None:
    drip(client, HEAD + b"X-Padding: " + b"x" * 1000)


def drip_body(client: socket.socket) -> None:
    client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
    drip(client, b"x" * 1000)


def drip_chunks(client: socket.socket) -> None:
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    drip(client, b"1\r\nx\r\n" * 200)


def drip_interim_answers(client: socket.socket) -> None:
    for _ in range(200):
        client.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.05)


def say_nothing(_client: socket.socket) -> None:
    pass


def answer(client: socket.socket) -> None:
    client.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")


def pour(client: socket.socket) -> None:
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")


SLOW = [drip_head, drip_body, drip_chunks, drip_interim_answers, say_nothing]
