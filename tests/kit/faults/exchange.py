"""One request under way, as the parts of the server hand it to each other."""

from __future__ import annotations

import asyncio
import time

from tests.kit.faults.connection import Connection
from tests.kit.faults.http1 import Request
from tests.kit.faults.script import Fault


class Exchange:
    """A request, its connection, the fault it gets, and the wait it is in.

    Args:
        number: Among all requests, from 1.
        connection_number: Among all connections, from 1.

    Attributes:
        names: What was granted so far.
    """

    def __init__(
        self,
        number: int,
        connection_number: int,
        connection: Connection,
        request: Request,
        fault: Fault | None,
    ) -> None:
        self.number = number
        self.connection_number = connection_number
        self.connection = connection
        self.request = request
        self.fault = fault
        self.names: list[str] = []
        self._since = time.monotonic()
        self._stirred = asyncio.Event()
        connection.on_change = self.stir

    def fault_is(self, *names: str) -> bool:
        return self.fault is not None and self.fault.name in names

    def stir(self) -> None:
        """Wake it, to look again at whatever it waits for."""
        self._stirred.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Sleep until stirred, at most this long."""
        self._stirred.clear()
        try:
            await asyncio.wait_for(self._stirred.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def show(self) -> dict[str, object]:
        """What the state says of it."""
        return {
            "request": self.number,
            "connection": self.connection_number,
            "target": self.request.target,
            "idempotency_key": self.request.headers.get("idempotency-key"),
            "got": list(self.names),
            "since": round(self._since, 6),
        }
