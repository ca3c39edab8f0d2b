"""What tests ask of the server, on a port of its own so that the protocol's stays exact."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Callable

from tests.kit.faults.connection import Connection, Listener
from tests.kit.faults.http1 import Answer, BadRequest, Request
from tests.kit.faults.log import Log
from tests.kit.faults.script import parse_rule
from tests.kit.faults.server import LeaseProxy


class ControlPort:
    """Paths below ``/_test/``; arguments are a JSON object in the body.

    GET state; POST faults {rules}, refuse {seconds}, accept, resume, mark {text},
    occupy {type, count}, vacate {names}, reap {names}. Each answers with JSON, or 400 and a line
    why not.

    Args:
        proxy: What it is about.
        log: Where what was asked for is written.
    """

    def __init__(self, proxy: LeaseProxy, log: Log) -> None:
        self._proxy = proxy
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self.listener = Listener(lambda: Connection(self._opened))
        self._actions: dict[str, Callable[[Mapping[str, object]], object]] = {
            "state": lambda _: proxy.state(),
            "faults": self._faults,
            "refuse": lambda given: proxy.refuse(float(str(given.get("seconds", 0)))),
            "accept": lambda _: proxy.accept(),
            "resume": lambda _: proxy.resume(),
            "mark": lambda given: log.write("mark", text=str(given["text"])),
            "occupy": lambda given: proxy.source.occupy(
                str(given["type"]), int(str(given.get("count", 1)))
            ),
            "vacate": lambda given: proxy.source.vacate(_names(given)),
            "reap": lambda given: proxy.source.reap(_names(given)),
        }

    def _opened(self, connection: Connection) -> None:
        task = asyncio.ensure_future(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            request = await connection.read_request()
            if request is not None:
                connection.write(self._answer(request).encode(close=True))
        except BadRequest:
            pass
        finally:
            connection.close()

    def _answer(self, request: Request) -> Answer:
        prefix, _, name = request.path.rpartition("/")
        if prefix != "/_test" or name not in self._actions:
            return Answer(404, f"no {request.path}\n".encode())
        try:
            given = json.loads(request.body or b"{}")
            answer = json.dumps(self._actions[name](given))
        except (ValueError, KeyError, AttributeError) as error:
            return Answer(400, f"{error!r}\n".encode())
        return Answer(200, answer.encode(), "application/json")

    def _faults(self, given: Mapping[str, object]) -> None:
        sources = given["rules"]
        if not isinstance(sources, list):
            raise ValueError("rules are no list")
        self._proxy.script.replace([parse_rule(source) for source in sources])
        self._log.write("faults", rules=sources)


def _names(given: Mapping[str, object]) -> list[str]:
    names = given.get("names", [])
    if not isinstance(names, list):
        raise ValueError("names are no list")
    return names
