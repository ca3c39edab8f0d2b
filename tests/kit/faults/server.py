"""The server: gives each request to the protocol, and does with it what the script says."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from tests.kit.faults import hostile
from tests.kit.faults.answers import quoted, refusal
from tests.kit.faults.connection import Connection, Exchange, Listener
from tests.kit.faults.http1 import Answer, BadRequest, Request
from tests.kit.faults.lease_api import ACQUIRE, RELEASE
from tests.kit.faults.log import Log
from tests.kit.faults.script import Fault, Script

_GARBAGE_BYTES = 64
_LOGGED_BYTES = 4096
_NOT_JSON = "<html><body>Please log in.</body></html>"


class Source(Protocol):
    """Where leases come from: the protocol itself, or another server behind a relay."""

    async def handle(self, exchange: Exchange) -> Answer: ...
    def state(self) -> dict[str, object]: ...
    def occupy(self, pool_type: str, count: int) -> list[str]: ...
    def vacate(self, names: Sequence[str]) -> list[str]: ...
    def reap(self, names: Sequence[str]) -> list[str]: ...


class LeaseProxy:
    """The lease proxy that can go wrong.

    Args:
        source: What requests do.
        script: What goes wrong with them.
        log: Where it all is written.
        port: By default one that is free.
    """

    def __init__(self, source: Source, script: Script, log: Log, *, port: int = 0) -> None:
        self.source = source
        self.script = script
        self.listener = Listener(lambda: Connection(self._opened), port)
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._hanging: dict[int, Exchange] = {}
        self._connections = 0
        self._requests = 0

    def refuse(self, seconds: float = 0.0) -> None:
        """Close the listening socket for a while; 0 seconds: until told to `accept`."""
        self._log.write("refuse", seconds=seconds)
        self.listener.close()
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self.accept)

    def accept(self) -> None:
        """Listen, also before the while is over."""
        if not self.listener.is_open:
            self.listener.open()
            self._log.write("accept")

    def resume(self) -> None:
        """Let the requests that hang go on."""
        for exchange in self._hanging.values():
            exchange.stir()
        self._hanging.clear()

    def state(self) -> dict[str, object]:
        """What is leased, who waits, and what has come in so far."""
        return {
            **self.source.state(),
            "hanging": [exchange.show() for exchange in self._hanging.values()],
            "requests": self._requests,
            "connections": self._connections,
            "open_connections": len(self._tasks),
            "listening": self.listener.is_open,
        }

    # ---- connections

    def _opened(self, connection: Connection) -> None:
        self._connections += 1
        task = asyncio.ensure_future(self._serve(connection, self._connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection, number: int) -> None:
        fault = self.script.for_connection(number)
        self._log.write("connect", connection=number, fault=fault.name if fault else None)
        try:
            if fault is not None:
                connection.reset()
                return
            goes_on = True
            while goes_on:
                request = await connection.read_request()
                goes_on = request is not None and await self._exchange(connection, number, request)
        except BadRequest as error:
            answer = Answer(400, f"400 Bad Request: {error}".encode())
            connection.write(answer.encode(close=True))
            self._log.write("bad-request", connection=number, reason=str(error))
        finally:
            connection.close()
            self._log.write("disconnect", connection=number)

    # ---- requests

    async def _exchange(self, connection: Connection, number: int, request: Request) -> bool:
        """Do one request, and tell whether the connection may have another."""
        self._requests += 1
        fault = self.script.for_request(self._requests, path=request.path, connection=number)
        exchange = Exchange(self._requests, number, connection, request, fault)
        self._log_request(exchange)
        if request.path != RELEASE:
            connection.leave_body_unread(request)
        if exchange.fault_is("refuse", "reset-before"):
            if fault is not None and fault.name == "refuse":
                self.refuse(fault.seconds)
            return self._reset(exchange)
        stays = await self._pause(exchange, ("delay", "boskos-away", "late"), "hang")
        if not stays and not exchange.fault_is("late"):
            return self._leave_unanswered(exchange)
        answer = await self._answer(exchange)
        if exchange.fault_is("reset-after"):
            return self._reset(exchange)
        if not await self._pause(exchange, ("delay-after",), "hang-after"):
            return self._leave_unanswered(exchange)
        return await self._send(exchange, answer)

    async def _pause(self, exchange: Exchange, delays: Collection[str], hang: str) -> bool:
        """Wait as the fault says, and tell whether there still is a connection."""
        fault = exchange.fault
        if fault is not None and fault.name in delays:
            await asyncio.sleep(fault.seconds)
        elif fault is not None and fault.name == hang:
            self._hanging[exchange.number] = exchange
            while exchange.number in self._hanging and not exchange.connection.lost:
                await exchange.wait()
            self._hanging.pop(exchange.number, None)
        return not exchange.connection.lost

    async def _answer(self, exchange: Exchange) -> Answer:
        fault = exchange.fault
        if fault is not None and fault.status is not None:
            return _error(fault, fault.status, exchange.request)
        if fault is not None and fault.name == "names-hostile" and exchange.request.path == ACQUIRE:
            variant = hostile.choose(fault.variant, self.script.content(exchange.number))
            if hostile.needs_grant(variant):
                await self.source.handle(exchange)
            return hostile.answer(variant, exchange.names)
        answer = await self.source.handle(exchange)
        if fault is not None and fault.name == "not-json":
            text = _NOT_JSON if fault.text is None else fault.text
            return Answer(200, text.encode(), "text/html")
        return answer

    # ---- answers

    async def _send(self, exchange: Exchange, answer: Answer) -> bool:
        connection, fault = exchange.connection, exchange.fault
        name = fault.name if fault is not None else None
        close = not exchange.request.keeps_alive
        data = answer.encode(close=close)
        how = "whole"
        if name == "half":
            how, close = "half", True
            data = data[: _size_of_half(fault, answer, data)]
        elif name == "garbage":
            how, close = "garbage", True
            data = bytes(self.script.content(exchange.number).choices(range(256), k=_GARBAGE_BYTES))
            data = b"\x16\x03" + data
        elif name == "close-keepalive":
            close = True
        elif name == "drip":
            how = "drip"
        # Before it is sent: whoever has the answer finds it in the log.
        self._log_answer(exchange, how, answer, written=connection.can_be_written)
        if name == "drip" and fault is not None:
            await self._drip(exchange, data, fault.seconds)
        else:
            connection.write(data)
        return not close

    async def _drip(self, exchange: Exchange, data: bytes, seconds: float) -> None:
        for position in range(len(data)):
            exchange.connection.write(data[position : position + 1])
            await asyncio.sleep(seconds)
        if not exchange.connection.can_be_written:
            self._log_answer(exchange, "cut")

    def _reset(self, exchange: Exchange) -> bool:
        self._log_answer(exchange, "reset")
        exchange.connection.reset()
        return False

    def _leave_unanswered(self, exchange: Exchange) -> bool:
        self._log_answer(exchange, "none")
        return False

    # ---- the log

    def _log_request(self, exchange: Exchange) -> None:
        request = exchange.request
        self._log.write(
            "request",
            request=exchange.number,
            connection=exchange.connection_number,
            method=request.method,
            target=request.target,
            path=request.path,
            idempotency_key=request.headers.get("idempotency-key"),
            authorization="authorization" in request.headers,
            body=request.body.decode("utf-8", "replace"),
            fault=exchange.fault.name if exchange.fault is not None else None,
        )

    def _log_answer(
        self, exchange: Exchange, how: str, answer: Answer | None = None, *, written: bool = False
    ) -> None:
        self._log.write(
            "answer",
            request=exchange.number,
            how=how,
            status=answer.status if answer is not None else None,
            body=answer.body[:_LOGGED_BYTES].decode("utf-8", "replace") if answer else None,
            names=list(exchange.names),
            written=written,
            client_gone=exchange.connection.client_is_gone,
        )


def _size_of_half(fault: Fault | None, answer: Answer, data: bytes) -> int:
    """Up to the middle of the body; of the head where there is no body."""
    if fault is not None and fault.bytes is not None:
        return fault.bytes
    return len(data) - (len(answer.body) + 1) // 2 if answer.body else len(data) // 2


def _error(fault: Fault, status: int, request: Request) -> Answer:
    """The error to answer with, in the real one's words unless the fault has its own."""
    if fault.text is not None:
        return refusal(status, fault.text)
    if status == 404 and request.path == ACQUIRE:
        pool_type = quoted(request.query("type"))
        return refusal(404, f"Failed to acquire lease {pool_type}: resource type not found")
    return refusal(status, f"scripted {status}")
