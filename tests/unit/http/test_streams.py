"""Streams of a server that falls silent, and requests with few headers."""

from __future__ import annotations

import socket

import pytest

from leasectl.http.exchange import Client
from leasectl.http.messages import Call, headers_of
from leasectl.http.no_answer import NoAnswer
from leasectl.system.clock import Clock
from tests.kit.peculiar import HEAD, StartPeculiar


def test_one_that_is_silent_for_too_long_has_failed(serve: StartPeculiar) -> None:
    def be_silent(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n6\r\nbegun\n\r\n")
        connection.recv(1)

    call = Call(f"{serve(be_silent).endpoint}/path", b"first\n", longest_silence_seconds=0.1)
    client = Client(clock=Clock(), connect_seconds=1, longest_bytes=1 << 20)
    with client, client.stream(call) as lines:
        assert next(lines) == "begun"
        with pytest.raises(NoAnswer):
            next(lines)


def test_no_header_is_sent_that_http_does_not_need() -> None:
    call = Call("http://h/", b"x", {"Authorization": "y"}, is_terse=True)
    said = [("Content-Length", "1"), ("Authorization", "y")]
    assert headers_of(call, closes=False) == said
    assert headers_of(call, closes=True) == [("Connection", "close"), *said]
