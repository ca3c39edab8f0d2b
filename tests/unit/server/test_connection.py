"""What a connection knows of its client, in one event loop with that client."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Callable

import pytest
import uvicorn
from uvicorn.server import ServerState

from leasectl.server.connection import SCOPE_KEY, ClientConnection
from leasectl.server.responses import GrantResponse

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\n"


class _Meeting:
    """A server that answers when told, and its one client."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.connection: ClientConnection | None = None

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.connection = scope[SCOPE_KEY]
        self.asked.set()
        await self.answer.wait()
        await GrantResponse(["T--00"], scope[SCOPE_KEY], self.verdict.set_result)(
            scope, receive, send
        )

    async def client(self, *headers: bytes) -> socket.socket:
        """Connect and ask."""
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(self.app, interface="asgi3", log_config=None, lifespan="off")
        config.load()

        def protocol() -> ClientConnection:
            return ClientConnection(config=config, server_state=ServerState(), app_state={})

        server = await loop.create_server(protocol, "127.0.0.1", 0)
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        await loop.sock_sendall(client, REQUEST + b"".join(headers) + b"\r\n")
        await self.asked.wait()
        return client


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_close(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


async def _answer_arrives(client: socket.socket) -> None:
    """Wait until there is something to read, and leave it unread."""
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()
    loop.add_reader(client, arrived.set_result, None)
    await arrived
    loop.remove_reader(client)


async def _read_answer(client: socket.socket) -> None:
    data = b""
    while b"T--00" not in data:
        data += await asyncio.get_running_loop().sock_recv(client, 4096)


LAST = pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"], ids=["kept", "last"])
HALVES = pytest.mark.parametrize("closed_before", [False, True], ids=["open", "half-closed"])


@LAST
@HALVES
@pytest.mark.parametrize("end", [socket.socket.close, None], ids=["closes", "stays"])
def test_an_answer_that_was_read_is_delivered(
    last: bytes, closed_before: bool, end: Callable[[socket.socket], None] | None
) -> None:
    async def meet() -> bool:
        meeting = _Meeting()
        client = await meeting.client(last)
        if closed_before:
            half_close(client)
            assert meeting.connection is not None
            await meeting.connection.gone
        meeting.answer.set()
        await _read_answer(client)
        if end is not None:
            end(client)
        verdict = await meeting.verdict
        client.close()
        return verdict

    assert asyncio.run(meet())


@LAST
@HALVES
def test_an_answer_that_was_left_unread_is_not(last: bytes, closed_before: bool) -> None:
    async def meet() -> bool:
        meeting = _Meeting()
        client = await meeting.client(last)
        if closed_before:
            half_close(client)
            assert meeting.connection is not None
            await meeting.connection.gone
        meeting.answer.set()
        await _answer_arrives(client)
        client.close()  # with something unread, which resets it
        return await meeting.verdict

    assert not asyncio.run(meet())


@LAST
@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["closes", "resets"])
def test_an_answer_to_nobody_is_not(last: bytes, leave: Callable[[socket.socket], None]) -> None:
    async def meet() -> bool:
        meeting = _Meeting()
        client = await meeting.client(last)
        leave(client)
        assert meeting.connection is not None
        await meeting.connection.gone
        meeting.answer.set()
        return await meeting.verdict

    assert not asyncio.run(meet())


def test_a_client_that_does_not_half_close_is_not_gone() -> None:
    async def meet() -> bool:
        meeting = _Meeting()
        client = await meeting.client()
        assert meeting.connection is not None
        was_gone = meeting.connection.gone.done()
        meeting.answer.set()
        await meeting.verdict
        client.close()
        return was_gone

    assert not asyncio.run(meet())
