"""The lease proxy's protocol: its paths, methods, codes and texts, and how it takes and gives back.

As ci-operator's does it: units are taken one after the other; each is asked for once before anybody
looks whether the client is still there, so a grant may race the client's going away; what was taken
before an error stays leased, and nobody gets to know its name.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.kit.faults.answers import names_answer, quoted, refusal
from tests.kit.faults.connection import Exchange
from tests.kit.faults.http1 import Answer
from tests.kit.faults.ledger import Ledger, NotReleased, Places
from tests.kit.faults.log import Log
from tests.kit.faults.script import Fault

ACQUIRE = "/lease/acquire"
RELEASE = "/lease/release"
_BOSKOS_FAILS = {
    "fail-unit": "Boskos is unavailable",
    "boskos-away": 'Post "http://boskos/acquire": dial tcp 172.30.0.1:80: connect: '
    "connection refused",
}
_GHOST_LOOK_SECONDS = 0.02
_COUNT = re.compile(r"[0-9]{1,19}", re.ASCII)


class _NotAcquired(Exception):
    """No lease, for this reason."""


class LeaseApi:
    """The two paths of the protocol.

    Args:
        ledger: The resources.
        log: Where grants and releases are written.
        acquire_timeout_seconds: How long an acquire may wait in all.
        ghost_seconds: As `Places` has it.
        reaped_seconds: How long it takes to find out that Boskos has taken a lease back; nobody is
            served meanwhile.
        poll_seconds: Waiters look again this often, as the real one does every 3 s; None: at once
            when something becomes free.
        idempotent: Honour `Idempotency-Key`, which the real one doesn't: a repeated key gets the
            same names until one of them is released; a release with a key, or a part that keys
            begin with, releases only what was granted with it, so that a repeated one can't free
            what is somebody else's by now. One of no names releases all that its key has.
    """

    def __init__(
        self,
        ledger: Ledger,
        log: Log,
        *,
        acquire_timeout_seconds: float = 7200.0,
        poll_seconds: float | None = None,
        ghost_seconds: float | None = None,
        reaped_seconds: float = 14.0,
        idempotent: bool = False,
    ) -> None:
        self._ledger = ledger
        self._log = log
        self._acquire_timeout_seconds = acquire_timeout_seconds
        self._poll_seconds = poll_seconds
        self._places = Places(ghost_seconds)
        self._reaped_seconds = reaped_seconds
        self._busy = asyncio.Lock()
        self._idempotent = idempotent
        self._by_key: dict[str, list[str]] = {}
        self._waiting: dict[int, Exchange] = {}

    def state(self) -> dict[str, object]:
        """What is leased, by whom, and who waits."""
        return {
            "leased": self._ledger.leased,
            "forgotten": self._ledger.forgotten,
            "occupied": self._ledger.occupied,
            "free": self._ledger.free,
            "waiting": [exchange.show() for exchange in self._waiting.values()],
        }

    def occupy(self, pool_type: str, count: int) -> list[str]:
        """Let other jobs have free resources.

        Raises:
            ValueError: There is no such type.
        """
        if not self._ledger.has_type(pool_type):
            raise ValueError(f"no type {pool_type}")
        names = self._ledger.occupy(pool_type, count)
        self._log.write("occupy", names=names)
        return names

    def vacate(self, names: Sequence[str]) -> list[str]:
        """Let other jobs give back these resources, or all that they have."""
        vacated = self._ledger.vacate(names)
        self._log.write("vacate", names=vacated)
        self._stir()
        return vacated

    def reap(self, names: Sequence[str]) -> list[str]:
        """Take these leases back as Boskos' reaper does, without telling the proxy."""
        taken = self._ledger.reap(names)
        self._log.write("reap", names=taken)
        self._stir()
        return taken

    async def handle(self, exchange: Exchange) -> Answer:
        """Do what a request asks for."""
        request = exchange.request
        if request.path not in (ACQUIRE, RELEASE):
            return refusal(404, "404 page not found")
        if request.method != "POST":
            return refusal(405, f"Method {request.method} not allowed, POST requests only.")
        if request.path == RELEASE:
            return await self._release(exchange)
        answer = await self._acquire(exchange)
        key = self._key(exchange)
        return answer if key is None else answer._replace(headers=(("Idempotency-Key", key),))

    async def _acquire(self, exchange: Exchange) -> Answer:
        pool_type = exchange.request.query("type")
        count = exchange.request.query("count") or "1"
        if not pool_type:
            return refusal(400, "type is required")
        if not _COUNT.fullmatch(count):
            return refusal(400, f'parameter "count" is not valid: {count}')
        # Asked for nothing, it doesn't ask Boskos whether there is such a type.
        if int(count) == 0:
            return names_answer([])
        try:
            return names_answer(await self._take(exchange, pool_type, int(count)))
        except _NotAcquired as error:
            status = 500 if self._ledger.has_type(pool_type) else 404
            return refusal(status, f"Failed to acquire lease {quoted(pool_type)}: {error}")

    async def _take(self, exchange: Exchange, pool_type: str, count: int) -> list[str]:
        if not self._ledger.has_type(pool_type):
            raise _NotAcquired("resource type not found")
        deadline = time.monotonic() + self._acquire_timeout_seconds
        key = self._key(exchange)
        if key is not None:
            # Shared by all requests with this key, also by those that wait at the same time.
            exchange.names = self._by_key.setdefault(key, [])
        names = exchange.names
        while len(names) < count:
            _fail_at(exchange, len(names) + 1)
            async with self._busy:
                name = self._grant(exchange, pool_type)
            if name is not None:
                names.append(name)
                self._log.write("grant", request=exchange.number, name=name)
                self._stir()
            elif exchange.connection.client_is_gone:
                self._places.abandon(pool_type, exchange.number)
                raise _NotAcquired("context canceled")
            elif time.monotonic() >= deadline:
                self._places.abandon(pool_type, exchange.number)
                raise _NotAcquired("resources not found")
            else:
                await self._wait(exchange, deadline)
        if exchange.fault is not None and exchange.fault.unit > count:
            _fail_at(exchange, exchange.fault.unit)
        return names

    def _grant(self, exchange: Exchange, pool_type: str) -> str | None:
        free = self._ledger.count_free(pool_type)
        if not self._places.may_have(pool_type, exchange.number, free=free):
            return None
        name = self._ledger.grant(pool_type)
        self._places.leave(pool_type, exchange.number)
        return name

    async def _wait(self, exchange: Exchange, deadline: float) -> None:
        seconds = max(0.0, deadline - time.monotonic())
        if self._poll_seconds is not None:
            seconds = min(seconds, self._poll_seconds)
        elif self._places.are_kept:
            seconds = min(seconds, _GHOST_LOOK_SECONDS)
        with self._listed(exchange):
            await exchange.wait(seconds)

    @contextmanager
    def _listed(self, exchange: Exchange) -> Iterator[None]:
        self._waiting[exchange.number] = exchange
        try:
            yield
        finally:
            del self._waiting[exchange.number]

    async def _release(self, exchange: Exchange) -> Answer:
        try:
            names = _parse_names(exchange.request.body)
        except ValueError as error:
            return refusal(400, f"unmarshal request body: {error}")
        async with self._busy:
            if any(map(self._ledger.is_reaped, names)):
                await asyncio.sleep(self._reaped_seconds)
            answer = self._release_all(exchange, names or self._undone(exchange))
        key = self._key(exchange)
        return answer if key is None else answer._replace(headers=(("Idempotency-Key", key),))

    def _undone(self, exchange: Exchange) -> list[str]:
        """What a release of no names gives back: all that was granted with its key."""
        key = self._key(exchange)
        granted = [names for each, names in self._by_key.items() if key and _covers(key, each)]
        return [name for names in granted for name in names]

    def _release_all(self, exchange: Exchange, names: Sequence[str]) -> Answer:
        released: list[str] = []
        for name in names:
            try:
                self._release_one(exchange, name, unit=len(released) + 1)
            except NotReleased as error:
                done = " ".join(released)
                return refusal(500, f"Failed to release lease {name}: {error}\nReleased: {done}")
            released.append(name)
        return Answer(204)

    def _release_one(self, exchange: Exchange, name: str, *, unit: int) -> None:
        failing = _reason(exchange.fault) if _fails_at(exchange.fault, unit) else None
        try:
            self._check_key(exchange, name)
            self._forget_key_of(name)
            self._ledger.release(name, failing=failing)
        except NotReleased as error:
            self._log.write("not-released", request=exchange.number, name=name, reason=str(error))
            raise
        self._log.write("release", request=exchange.number, name=name)
        self._stir()

    def _stir(self) -> None:
        """Tell waiters that something may be free; those that poll find out by themselves."""
        if self._poll_seconds is None:
            for exchange in self._waiting.values():
                exchange.stir()

    def _key(self, exchange: Exchange) -> str | None:
        return exchange.request.headers.get("idempotency-key") if self._idempotent else None

    def _check_key(self, exchange: Exchange, name: str) -> None:
        key = self._key(exchange)
        granted = [names for each, names in self._by_key.items() if key and _covers(key, each)]
        if key is not None and not any(name in names for names in granted):
            raise NotReleased(f"no resource name {name}")

    def _forget_key_of(self, name: str) -> None:
        self._by_key = {key: names for key, names in self._by_key.items() if name not in names}


def _covers(key: str, other: str) -> bool:
    """Whether a key is the other or one of the parts that it begins with."""
    return other == key or other.startswith(f"{key}/")


def _fail_at(exchange: Exchange, unit: int) -> None:
    if _fails_at(exchange.fault, unit):
        raise _NotAcquired(_reason(exchange.fault))


def _fails_at(fault: Fault | None, unit: int) -> bool:
    return fault is not None and fault.name in _BOSKOS_FAILS and fault.unit == unit


def _reason(fault: Fault | None) -> str:
    assert fault is not None
    return fault.text or _BOSKOS_FAILS[fault.name]


def _parse_names(body: bytes) -> list[str]:
    if not body:
        raise ValueError("unexpected end of JSON input")
    try:
        decoded = json.loads(body)
    except ValueError:
        raise ValueError("invalid JSON") from None
    if decoded is None:
        return []
    if not isinstance(decoded, dict):
        raise ValueError("not an object")
    # As Go's encoding/json: a key is the same however it is spelt, and the last one counts.
    names = {key.lower(): value for key, value in decoded.items()}.get("names")
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("names are not a list of strings")
    return names
