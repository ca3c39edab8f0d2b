"""The words that the contract is written in, for every engine alike.

A `World` is one store with pools in it. Its clients acquire and free at the same time, may be
killed, and live in a time that the test lets pass. To put another engine under the contract,
write such a class for it and add it to `WORLDS` in conftest.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable, Protocol, TypeVar

from leasectl.backends.contract import Journal, Patience, Turn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import Engine
from leasectl.engines.pool_admin import Sides
from leasectl.model import Claimant, Lease, Process, Request
from leasectl.system.clock import Clock
from tests.kit.recorded import NoJournal

_OWN_POOLS = "is_of_own_pools"
_Claim = TypeVar("_Claim", bound=Callable[..., object])


def own_pools(claim: _Claim) -> _Claim:
    """Mark what holds of a backend with pools of its own, and is no promise of others."""
    setattr(claim, _OWN_POOLS, True)
    return claim


def claims_without_pools(contract: ModuleType) -> list[Callable[[Any], None]]:
    """The claims of a contract that are promises of every backend that leases."""
    found = _unmarked(vars(contract), "test_")
    for each in _unmarked(vars(contract), "Test"):
        found += _unmarked({name: getattr(each(), name) for name in vars(each)}, "test_")
    return found


def _unmarked(named: Mapping[str, Any], begin: str) -> list[Any]:
    return [
        each
        for name, each in named.items()
        if name.startswith(begin) and not hasattr(each, _OWN_POOLS)
    ]


class Pending(Protocol):
    """A request that a client has made and that may still be waiting."""

    def done(self) -> bool:
        """Tell whether it has come to an end."""

    def result(self) -> tuple[Lease, ...]:
        """Wait for its end: what was had, or the error raised."""


class Client(Protocol):
    """One participant: a process, or what stands for one.

    Attributes:
        owner: Under which it holds leases.
    """

    claim_key: str

    def acquire(self, request: Request, *, wait: float | None = 0) -> tuple[Lease, ...]:
        """Acquire, by default without waiting."""

    def begin(self, request: Request, *, wait: float | None = None) -> Pending:
        """Start to acquire; returns once the request is in the queue, or has ended already."""

    def begin_rounds(self, request: Request, rounds: int) -> Callable[[], list[Hold]]:
        """Start to acquire and free so many times; call what is returned to wait for the end."""

    def free(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Give back; returns the names that were this client's own."""

    def renew(self, ttl_seconds: float | None = None) -> tuple[str, ...]:
        """Renew; returns the names that the client still holds."""

    def kill(self) -> None:
        """End it at once, whatever it is doing; nothing of it runs afterwards."""

    def stop(self) -> None:
        """Have nothing of it run, from now on until it is continued."""

    def go_on(self) -> None:
        """Continue it; it knows nothing of the time in between."""

    def wakeups(self) -> int:
        """How often its waits have returned."""

    def timed_waits(self) -> int:
        """How often it has waited with a time limit."""


class World(Sides, Protocol):
    """A store, its clients and its time.

    Attributes:
        ttl_seconds: A ttl as short as the store can do.
        keeps_stopped: A waiter that was stopped for long has kept its position in the queue.
        ages_itself: Each waiter sees to it itself that its ticket counts with more in time.
        counts_grants: They are numbered 1, 2, 3; else only in order.
        has_fences: Each lease has one.
        numbers_what_happened: Events are numbered as they happened; else as they were told.
    """

    ttl_seconds: float
    keeps_stopped: bool
    ages_itself: bool
    counts_grants: bool
    has_fences: bool
    numbers_what_happened: bool

    @property
    def engine(self) -> Engine:
        """The store."""

    def client(self) -> Client:
        """A new participant."""

    def withdraw(self, client: Client) -> None:
        """Take a client's request out of the queue, as a release of its handle does."""

    def let_pass(self, seconds: float) -> None:
        """Have this much time go by for the store and all its clients."""

    def lost(self) -> list[tuple[str, str]]:
        """The owners, each with a name, that were told of a lease they lost."""

    def close(self) -> None:
        """End all clients."""


def are_numbered(world: World, grants: Sequence[int], *, first: int = 1) -> bool:
    """Tell whether grants that came one after the other are numbered as this store promises."""
    if world.counts_grants:
        return list(grants) == list(range(first, first + len(grants)))
    return list(grants) == sorted(set(grants))


@dataclass(frozen=True)
class Hold:
    """That a client held a lease, from after it was granted to before it was given back."""

    lease: Lease
    since: float
    until: float


class Participant:
    """What a client does, in its own thread or process.

    Args:
        engine: Its view of the store.
        sides: The same.
        clock: The store's.
        owner: Under which it holds leases.
        process: Whose death makes its tickets void, for stores that ask.
        note_waiting: Called before each wait.
        count_wakeup: Called when a wait has returned.
        count_timed_wait: Called before a wait with a time limit.
        record: Called before each acquisition, where the store reads the handles' records.
    """

    def __init__(
        self,
        engine: Engine,
        sides: Sides,
        clock: Clock,
        *,
        claim_key: str,
        process: Process,
        note_waiting: Callable[[], None],
        count_wakeup: Callable[[], None],
        count_timed_wait: Callable[[], None],
        record: Callable[[Request], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._backend = _CountingBackend("contract:", engine, sides, clock=clock)
        self._backend.note_waiting = note_waiting
        self._backend.count_wakeup = count_wakeup
        self._backend.count_timed_wait = count_timed_wait
        self._owner = claim_key
        self._process = process
        self._record = record

    def acquire(self, request: Request, wait: float | None) -> tuple[Lease, ...]:
        self._record(request)
        claimant = Claimant(self._owner, f"job/1/host/{self._owner}", request, self._process)
        journal = NoJournal()
        self._backend.acquire(claimant, journal, Patience(wait_seconds=wait))
        return journal.leases or ()

    def rounds(self, request: Request, rounds: int) -> list[Hold]:
        holds = []
        for _ in range(rounds):
            leases = self.acquire(request, None)
            since = time.monotonic()
            time.sleep(0.0005)  # others get the chance to break in
            until = time.monotonic()
            self.free(None)
            holds += [Hold(lease, since, until) for lease in leases]
        return holds

    def free(self, names: Sequence[str] | None) -> tuple[str, ...]:
        with self._engine.atomic():
            return self._engine.free(self._owner, names)

    def renew(self, ttl_seconds: float | None = None) -> tuple[str, ...]:
        with self._engine.atomic():
            return self._engine.renew(self._owner, ttl_seconds=ttl_seconds)


class _CountingBackend(PoolBackend):
    """The pool algorithm, with its sleeps counted."""

    note_waiting: Callable[[], None]
    count_wakeup: Callable[[], None]
    count_timed_wait: Callable[[], None]

    def turn(self, claimant: Claimant, journal: Journal, patience: Patience) -> Turn:
        steps = super().turn(claimant, journal, patience)
        with contextlib.suppress(StopIteration):
            wanted = next(steps)
            while True:
                self.note_waiting()
                if wanted.until is not None:
                    self.count_timed_wait()
                try:
                    woken = yield wanted
                except BaseException as reason:
                    wanted = steps.throw(reason)
                else:
                    self.count_wakeup()
                    wanted = steps.send(woken)
