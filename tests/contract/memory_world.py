"""The memory engine as a `World`: clients are threads, and time moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Callable

from leasectl.engines.memory.engine import MemoryEngine
from leasectl.engines.memory.sides import MemorySides
from leasectl.engines.memory.store import MemoryStore
from leasectl.model import Lease, Request
from leasectl.system.process import this_process
from tests.contract.world import Client, Hold, Participant, Pending
from tests.kit.support import ManualClock
from tests.kit.waits import eventually, join, result_of


class MemoryWorld:
    """One engine in this process."""

    ttl_seconds = 10.0
    keeps_stopped = True
    next_is_witness = True
    ages_itself = False
    counts_grants = True
    has_fences = True
    numbers_what_happened = True

    def __init__(self) -> None:
        self._lost: list[tuple[str, str]] = []
        self.time = ManualClock()
        self._store = MemoryStore(clock=self.time.clock, lost=self._note_lost)
        self.engine = MemoryEngine(self._store)
        self.sides = MemorySides(self._store)
        self.pools, self.events = self.sides.pools, self.sides.events
        self.members, self.notes = self.sides.members, self.sides.notes
        self.values = self.sides.values
        self._clients: list[_Thread] = []

    def client(self) -> Client:
        client = _Thread(self, f"handle-{len(self._clients)}")
        self._clients.append(client)
        return client

    def withdraw(self, client: Client) -> None:
        self.engine.withdraw(client.claim_key)

    def let_pass(self, seconds: float) -> None:
        self.time.advance(seconds)
        self._store.wake_all()

    def lost(self) -> list[tuple[str, str]]:
        return self._lost

    def close(self) -> None:
        for client in self._clients:
            client.kill()

    def _note_lost(self, claim_key: str, names: Sequence[str]) -> None:
        self._lost += [(claim_key, name) for name in names]


class _Thread:
    """A client whose requests run in threads."""

    def __init__(self, world: MemoryWorld, claim_key: str) -> None:
        self.claim_key = claim_key
        self._engine = world.engine
        self._pools = world.pools
        self._threads: list[threading.Thread] = []
        self._wakeups = 0
        self._runs = threading.Event()
        self._runs.set()
        self._timed_waits = 0
        self._participant = Participant(
            world.engine,
            world.sides,
            world.time.clock,
            claim_key=claim_key,
            process=this_process(),
            count_wakeup=self._count_wakeup,
            count_timed_wait=self._count_timed_wait,
        )

    def acquire(self, request: Request, *, wait: float | None = 0) -> tuple[Lease, ...]:
        return self._participant.acquire(request, wait)

    def begin(self, request: Request, *, wait: float | None = None) -> Pending:
        ending = self._run(lambda: self._participant.acquire(request, wait))
        eventually(lambda: ending.done() or self._is_waiting())
        return _Pending(ending)

    def begin_rounds(self, request: Request, rounds: int) -> Callable[[], list[Hold]]:
        ending = self._run(lambda: self._participant.rounds(request, rounds))
        return lambda: result_of(ending)

    def free(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._participant.free(names)

    def renew(self, ttl_seconds: float | None = None) -> tuple[str, ...]:
        return self._participant.renew(ttl_seconds)

    def kill(self) -> None:
        self._engine.end_session(self.claim_key)
        self._runs.set()
        for thread in self._threads:
            join(thread)

    def stop(self) -> None:
        self._runs.clear()

    def go_on(self) -> None:
        self._runs.set()

    def wakeups(self) -> int:
        return self._wakeups

    def timed_waits(self) -> int:
        return self._timed_waits

    def _count_wakeup(self) -> None:
        self._runs.wait()
        self._wakeups += 1

    def _count_timed_wait(self) -> None:
        self._timed_waits += 1

    def _is_waiting(self) -> bool:
        return any(
            entry.claim_key == self.claim_key
            for pool in self._pools.pools()
            for entry in pool.queue
        )

    def _run(self, work: Callable[[], Any]) -> Future[Any]:
        ending: Future[Any] = Future()

        def run() -> None:
            try:
                ending.set_result(work())
            except BaseException as error:
                ending.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)
        return ending


class _Pending:
    def __init__(self, ending: Future[tuple[Lease, ...]]) -> None:
        self._ending = ending
        self.done = ending.done

    def result(self) -> tuple[Lease, ...]:
        return result_of(self._ending)
