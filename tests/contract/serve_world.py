"""`leasectl serve` as a `World`: its clients are connections.

Without what its protocol has no words for: ttls, renewing, one very resource.
"""

from __future__ import annotations

import itertools
import json
import select
import threading
import time
from collections.abc import Sequence
from typing import Callable

from leasectl.engines.pool_admin import PoolAdmin
from leasectl.errors import InvalidRequest, LeaseError, NoLease, NotFound
from leasectl.leases.service import Service
from leasectl.model import Lease, Request
from tests.contract.world import Hold
from tests.kit.faults.raw_client import Got, RawClient
from tests.kit.serving import Serving
from tests.kit.waits import eventually, join

_numbers = itertools.count()


class ServeWorld:
    """The shared server and what stands behind it; as `tests.contract.world.World` has it."""

    ttl_seconds = 0.0
    counts_grants = True  # as the embedded pool behind it
    has_fences = True

    def __init__(self, server: Serving, service: Service) -> None:
        self.server = server
        self.service = service
        self._clients: list[_Client] = []

    @property
    def pools(self) -> PoolAdmin:
        return self.service.pools

    def client(self) -> _Client:
        self._clients.append(_Client(self, f"client-{next(_numbers)}"))
        return self._clients[-1]

    def lost(self) -> list[tuple[str, str]]:
        return []

    def close(self) -> None:
        for pool in self.pools.pools():
            self.pools.delete_pool(pool.type, force=True)
        for client in self._clients:
            client.close()


class _Client:
    """A client of the server, which asks on connections of its own."""

    def __init__(self, world: ServeWorld, owner: str) -> None:
        self.owner = owner
        self._world = world
        self._asked = 0
        self._names: list[str] = []
        self._waiting: RawClient | None = None

    def acquire(self, request: Request, *, wait: float | None = 0) -> tuple[Lease, ...]:
        client = self._ask(request)
        if wait == 0:
            client.half_close()  # what is free is had all the same
        try:
            return self.take(client)
        except NoLease:
            self._withdraw()
            raise

    def begin(self, request: Request, *, wait: float | None = None) -> _Pending:
        assert wait is None
        self._waiting = self._ask(request)
        pending = _Pending(self, self._waiting)
        eventually(lambda: self._is_waiting() or pending.done())
        return pending

    def begin_rounds(self, request: Request, rounds: int) -> Callable[[], list[Hold]]:
        holds: list[Hold] = []

        def run() -> None:
            for _ in range(rounds):
                leases = self.acquire(request, wait=None)
                since = time.monotonic()
                time.sleep(0.0005)  # others get the chance to break in
                until = time.monotonic()
                self.free()
                holds.extend(Hold(lease, since, until) for lease in leases)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def end() -> list[Hold]:
            join(thread)
            return holds

        return end

    def free(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        freed = []
        with self._world.server.connect() as client:
            for name in self._names if names is None else names:
                got = client.release(name, Idempotency_Key=self.owner)
                assert got.status == 204 or f"no resource name {name}" in got.text
                if got.status == 204:
                    freed.append(name)
        self._names = [name for name in self._names if name not in freed]
        return tuple(freed)

    def kill(self) -> None:
        """Close its connections, as the end of a process does, and see that this was noticed."""
        self.close()
        eventually(lambda: not self._is_waiting())

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close()

    def take(self, client: RawClient) -> tuple[Lease, ...]:
        got = client.read_answer()
        client.close()
        if got.status != 200:
            raise _error(got)
        self._names += got.names
        return tuple(self._lease(name) for name in got.names)

    def _ask(self, request: Request) -> RawClient:
        self._asked += 1
        client = self._world.server.connect()
        key = f"{self.owner}/{self._asked}"
        client.start_acquire(request.type, request.count, Idempotency_Key=key)
        return client

    def _withdraw(self) -> None:
        """Give up the last request; otherwise it keeps its place for a retry with its key."""
        with self._world.server.connect() as client:
            assert client.release(Idempotency_Key=f"{self.owner}/{self._asked}").status == 204

    def _lease(self, name: str) -> Lease:
        rows = self._world.server.cli.query(
            "SELECT fence, ticket, grant_number FROM lease WHERE name = ?", name
        )
        ((fence, ticket, grant),) = rows
        numbers = (int(str(fence)), int(str(ticket)), int(str(grant)))
        return Lease(name, *numbers, self.owner, 0.0, 0.0, None, 0)

    def _is_waiting(self) -> bool:
        return bool(
            self._world.server.cli.query(
                "SELECT 1 FROM ticket, handle WHERE ticket.owner = handle.id AND labels LIKE ?",
                f"%={self.owner}/{self._asked}",
            )
        )


class _Pending:
    """A request whose answer hasn't been read."""

    def __init__(self, client: _Client, connection: RawClient) -> None:
        self._client = client
        self._connection = connection

    def done(self) -> bool:
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(self._connection.socket, select.POLLIN)
        return bool(poll.poll(0))

    def result(self) -> tuple[Lease, ...]:
        return self._client.take(self._connection)


def _error(got: Got) -> LeaseError:
    if got.status in (400, 404):
        return (InvalidRequest if got.status == 400 else NotFound)(got.text)
    assert "context canceled" in got.text, json.dumps(got)
    return NoLease(got.text)
