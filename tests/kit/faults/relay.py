"""Faults in front of a real server: requests are passed on, and what comes of them is logged.

A client that goes away is passed on too: its half-close is one towards the server, its reset ends
the connection to it.

The log is of what can be seen from here. A grant is logged when its answer comes, before any client
can know of it; a release when it is passed on, before the server can grant the name again. When a
release turns out not to have happened, `kept` takes it back.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from tests.kit.faults.answers import refusal
from tests.kit.faults.connection import Exchange
from tests.kit.faults.http1 import Answer, BadRequest, Request, parse_answer
from tests.kit.faults.lease_api import ACQUIRE, RELEASE
from tests.kit.faults.log import Log

# Between two neighbours on the way, not from end to end.
_HOP_HEADERS = ("host", "connection", "content-length", "transfer-encoding", "expect")
_REFUSED = re.compile(r"Failed to release lease (?P<name>\S+): (?P<reason>.*)")


class Relay:
    """Another server's answers.

    Args:
        url: Of the server.
        log: Where grants and releases are written.
    """

    def __init__(self, url: str, log: Log) -> None:
        address = urlsplit(url)
        self._host = address.hostname or ""
        self._port = address.port or 80
        self._log = log
        # With the key that the grant was asked for with.
        self._leased: dict[str, str | None] = {}
        self._waiting: dict[int, Exchange] = {}

    def state(self) -> dict[str, object]:
        """What is leased as far as can be seen, and which acquires have no answer yet."""
        return {
            "leased": sorted(self._leased),
            "waiting": [exchange.show() for exchange in self._waiting.values()],
        }

    def occupy(self, pool_type: str, count: int) -> list[str]:
        raise ValueError(f"only the server behind this relay can occupy {count} of {pool_type}")

    def vacate(self, names: Sequence[str]) -> list[str]:
        raise ValueError("only the server behind this relay can vacate")

    def reap(self, names: Sequence[str]) -> list[str]:
        raise ValueError("only the server behind this relay can reap")

    async def handle(self, exchange: Exchange) -> Answer:
        """Pass a request on; 502 when there is no answer."""
        path = exchange.request.path
        given_up = self._note_releases(exchange) if path == RELEASE else {}
        if path == ACQUIRE:
            self._waiting[exchange.number] = exchange
        try:
            answer = parse_answer(await self._pass_on(exchange))
        except (OSError, BadRequest) as error:
            answer = refusal(502, f"relay: {error}")
        finally:
            self._waiting.pop(exchange.number, None)
        if path == ACQUIRE and answer.status == 200:
            self._note_grants(exchange, answer)
        elif path == RELEASE and answer.status != 204:
            self._note_refusal(exchange, given_up, answer.body.decode("utf-8", "replace"))
        return answer

    async def _pass_on(self, exchange: Exchange) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(_encode(exchange.request, f"{self._host}:{self._port}"))
        answer = asyncio.ensure_future(reader.read())
        answer.add_done_callback(lambda _: exchange.stir())
        client_was_gone = False
        while not answer.done():
            if exchange.connection.lost:
                writer.transport.abort()
            elif exchange.connection.client_is_gone and not client_was_gone:
                client_was_gone = True
                writer.write_eof()
            await exchange.wait()
        writer.close()
        return answer.result()

    def _note_grants(self, exchange: Exchange, answer: Answer) -> None:
        exchange.names = _names(answer.body)
        key = exchange.request.headers.get("idempotency-key")
        for name in exchange.names:
            # A repeated key is told again of what it has.
            if key is None or self._leased.get(name) != key:
                self._leased[name] = key
                self._log.write("grant", request=exchange.number, name=name)

    def _note_releases(self, exchange: Exchange) -> dict[str, str | None]:
        key = exchange.request.headers.get("idempotency-key")
        # One of no names undoes all that was asked for with its key.
        names = _names(exchange.request.body) or [
            name for name, granted_with in self._leased.items() if key and granted_with
        ]
        given_up = {
            name: self._leased.pop(name)
            for name in dict.fromkeys(names)
            if name in self._leased and _may_release(key, self._leased[name])
        }
        for name in given_up:
            self._log.write("release", request=exchange.number, name=name)
        return given_up

    def _note_refusal(
        self, exchange: Exchange, given_up: Mapping[str, str | None], text: str
    ) -> None:
        refused, _, done = text.partition("\nReleased: ")
        found = _REFUSED.match(refused)
        if found is not None and found["name"] not in given_up:
            self._log.write("not-released", request=exchange.number, **found.groupdict())
        for name, key in given_up.items():
            if name not in done.split():
                self._leased[name] = key
                self._log.write("kept", request=exchange.number, name=name, reason=refused)


def _may_release(key: str | None, granted_with: str | None) -> bool:
    """Whether a server that looks at keys would let it: one key is the other or begins with it."""
    if key is None:
        return True
    if granted_with is None:
        return False
    return key.startswith(granted_with) or granted_with.startswith(key)


def _encode(request: Request, host: str) -> bytes:
    headers = {name: value for name, value in request.headers.items() if name not in _HOP_HEADERS}
    headers.update(host=host, connection="close")
    headers["content-length"] = str(len(request.body))
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body


def _names(body: bytes) -> list[str]:
    try:
        names = json.loads(body)["names"]
    except (ValueError, KeyError, TypeError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
