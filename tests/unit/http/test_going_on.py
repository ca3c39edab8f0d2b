"""Requests of which more follows while the answer comes in."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from leasectl.http.exchange import Client
from leasectl.http.http1 import chunk_of
from leasectl.http.messages import Call, headers_of
from leasectl.http.no_answer import NoAnswer
from leasectl.system.clock import Clock
from tests.kit.peculiar import HEAD, Peculiar, StartPeculiar

_BEGUN = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_LATE_SECONDS = 20.0


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(clock=Clock(), connect_seconds=1, longest_bytes=1 << 20) as client:
        yield client


def call_of(server: Peculiar, **options: float) -> Call:
    return Call(f"{server.endpoint}/path", b"first\n", goes_on=True, **options)  # type: ignore[arg-type]


def give_back(connection: socket.socket) -> None:
    """Begin an answer, and say whatever is sent from then on."""
    connection.sendall(_BEGUN + chunk_of(b"begun\n"))
    for said in iter(lambda: connection.recv(4096), b""):
        connection.sendall(said)


class TestGoingOn:
    def test_what_is_sent_later_is_answered_on_the_same_stream(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        server = serve(give_back)
        stream = client.stream(call_of(server))
        with stream as lines:
            assert next(lines) == "begun"
            for word in ("second", "third"):
                assert stream.send(f"{word}\n".encode())
                assert next(lines) == word
        assert server.connections == 1

    def test_on_one_that_was_cut_nothing_is_sent(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        stream = client.stream(call_of(serve(give_back)))
        with pytest.raises(NoAnswer), stream as lines:
            next(lines)
            stream.cut()
            assert not stream.send(b"second\n")
            next(lines)
        assert not stream.send(b"third\n")

    def test_what_the_server_does_not_take_at_once_is_not_sent(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        over = threading.Event()

        def take_nothing(connection: socket.socket) -> None:
            connection.sendall(_BEGUN + chunk_of(b"begun\n"))
            over.wait(_LATE_SECONDS)

        stream = client.stream(call_of(serve(take_nothing)))
        with stream as lines:
            next(lines)
            while stream.send(b"x" * (1 << 20)):
                pass
            over.set()

    def test_it_may_be_silent_once_that_is_borne(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        def be_silent(connection: socket.socket) -> None:
            connection.sendall(_BEGUN + chunk_of(b"begun\n"))
            threading.Event().wait(0.5)
            connection.sendall(chunk_of(b"after that\n"))
            connection.recv(1)

        server = serve(be_silent)
        for bears in (False, True):
            stream = client.stream(call_of(server, longest_silence_seconds=0.1))
            with stream as lines:
                next(lines)
                if bears:
                    stream.listen_on()
                    assert next(lines) == "after that"
                else:
                    with pytest.raises(NoAnswer):
                        next(lines)


class TestTerse:
    def test_no_header_is_sent_that_http_does_not_need(self) -> None:
        call = Call("http://h/", b"x", {"Authorization": "y"}, is_terse=True)
        said = [("Content-Length", "1"), ("Authorization", "y")]
        assert headers_of(call, closes=False) == said
        assert headers_of(call, closes=True) == [("Connection", "close"), *said]
