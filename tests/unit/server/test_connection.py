"""What a connection knows of its client, in one event loop with that client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any, Callable

import pytest
import uvicorn
from uvicorn.server import ServerState

from leasectl.server import connection
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
        await GrantResponse(b'{"names":["T--00"]}', scope[SCOPE_KEY], self.verdict.set_result)(
            scope, receive, send
        )

    async def client(self, *headers: bytes, body: bytes = b"") -> socket.socket:
        """Connect and ask."""
        client = await self.connect(REQUEST + b"".join(headers) + b"\r\n" + body)
        await self.asked.wait()
        return client

    async def connect(self, begun: bytes = b"") -> socket.socket:
        """Connect and send; what is sent is there before the server has accepted the connection."""
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(self.app, interface="asgi3", log_config=None, lifespan="off")
        config.load()

        def protocol() -> ClientConnection:
            return ClientConnection(config=config, server_state=ServerState(), app_state={})

        server = await loop.create_server(protocol, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        client.sendall(begun)
        client.setblocking(False)
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


class TestRequestsThatDontCome:
    """Each waits for what is to happen; the time that a request may take is short."""

    @pytest.fixture(autouse=True)
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.05)

    @pytest.mark.parametrize(
        "begun",
        [b"", b"PO", REQUEST, REQUEST + b"Content-Length: 9\r\n\r\nhalf"],
        ids=["nothing", "line", "head", "body"],
    )
    def test_one_that_isnt_whole_in_time_is_cut_however_it_drips(self, begun: bytes) -> None:
        async def meet() -> None:
            meeting = _Meeting()
            client = await meeting.connect(begun)
            drips = asyncio.ensure_future(_drip(client)) if begun == REQUEST else None
            assert await _read_to_end(client) == b""
            if drips is not None:
                await drips
            client.close()
            meeting.answer.set()

        asyncio.run(meet())

    def test_so_is_the_next_one_on_the_same_connection(self) -> None:
        async def meet() -> None:
            meeting = _Meeting()
            client = await meeting.client()
            meeting.answer.set()
            await _read_answer(client)
            await meeting.verdict
            meeting.verdict = asyncio.get_running_loop().create_future()
            await asyncio.get_running_loop().sock_sendall(client, b"POST")
            await _read_to_end(client)
            client.close()

        asyncio.run(meet())

    @pytest.mark.parametrize(
        "request_",
        [b"", b"Content-Length: 4\r\n", b"Content-Length: 4\r\nExpect: 100-continue\r\n"],
        ids=["bare", "body", "expects"],
    )
    def test_who_waits_for_an_answer_is_not(self, request_: bytes) -> None:
        async def meet() -> None:
            meeting, other = _Meeting(), _Meeting()
            body = b"body" if request_ == b"Content-Length: 4\r\n" else b""
            waiter = await meeting.client(request_, body=body)
            # Each takes as long as the waiter would have been given.
            for _ in range(3):
                late = await other.connect()
                await _read_to_end(late)
                late.close()
            meeting.answer.set()
            await _read_answer(waiter)
            waiter.close()

        asyncio.run(meet())


async def _drip(client: socket.socket) -> None:
    """Send a byte now and then, until nobody takes it."""
    with contextlib.suppress(OSError):
        while True:
            await asyncio.get_running_loop().sock_sendall(client, b"x")
            await asyncio.sleep(0.01)


async def _read_to_end(client: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            some = await asyncio.get_running_loop().sock_recv(client, 4096)
        except ConnectionResetError:
            return data
        if not some:
            return data
        data += some
