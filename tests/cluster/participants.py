"""Those who want leases on etcd: they take, use, renew, give back, and write down what they saw."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Callable, NamedTuple

from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.model import Lease, Request
from tests.kit.etcd.access import Access
from tests.kit.history import Recorder
from tests.kit.use import Use, give_back

POOL = "T"


class Habits(NamedTuple):
    """How participants behave; all ranges are from least to most, in seconds.

    Args:
        ttls: Those they choose from, seconds.
        most: How many resources they want at most.
        holds: For how long they use what they got.
        long_holds: The same, once in a while; longer than a ttl, so that renewals count.
        rests: What they rest in between.
        waits: How long they wait, when they don't wait for as long as it takes.
        patience: How long a request may take.
    """

    ttls: tuple[int, ...] = (3, 4, 5)
    most: int = 3
    holds: tuple[float, float] = (0.05, 0.8)
    long_holds: tuple[float, float] = (4.0, 9.0)
    rests: tuple[float, float] = (0.0, 0.5)
    waits: tuple[float, float] = (1.0, 8.0)
    patience: float = 5.0


class Surroundings(NamedTuple):
    """What all participants of a run share.

    Args:
        prefix: Below which the pool is.
        names: The pool's resources.
        history: The file that they write to.
        habits: How they behave.
    """

    prefix: str
    names: Sequence[str]
    history: Path
    habits: Habits


class Participant:
    """One who wants leases, over and over.

    Args:
        state_id: Its host and state directory, as it were.
        name: Unique in its place.
        endpoints: Where it finds the members.
        surroundings: What it shares with others.
        seed: Of its choices.
    """

    def __init__(
        self,
        state_id: str,
        name: str,
        endpoints: Sequence[str],
        surroundings: Surroundings,
        *,
        seed: int,
    ) -> None:
        self._state_id, self._name = state_id, name
        self._endpoints = endpoints
        self._surroundings = surroundings
        self._rng = random.Random(seed)
        self._recorder = Recorder(surroundings.history)
        self._access = self._open()
        self._turn = 0

    def take_turns(self, is_over: Callable[[], bool]) -> None:
        """Acquire, use and release until it is over."""
        while not is_over():
            self.take_turn()
            time.sleep(self._rng.uniform(*self._surroundings.habits.rests))

    def take_turn(self) -> None:
        """Do so once. What etcd can't do now is written down, and that is that."""
        rng, habits = self._rng, self._surroundings.habits
        self._turn += 1
        claim_key = f"{self._name}.{self._turn}"
        handle = f"{self._state_id}/{claim_key}"
        request = self._choose()
        wait = rng.uniform(*habits.waits) if rng.random() < 0.25 else None
        seconds = rng.uniform(*(habits.long_holds if rng.random() < 0.1 else habits.holds))
        callers = 2 if rng.random() < 0.25 else 1
        self._recorder.note("asked", handle, request.name or "-", wanted=request.count)
        try:
            leases = self._access.acquire(claim_key, request, wait=wait)
        except LeaseError as error:
            self._recorder.note("gave-up", handle, type(error).__name__)
            return
        use = Use(self._recorder, handle, leases)
        use.last(seconds, lambda: self._access.engine.renew(claim_key))
        self._release(claim_key, handle, leases, callers)

    def _choose(self) -> Request:
        rng, habits = self._rng, self._surroundings.habits
        ttl = rng.choice(habits.ttls)
        if rng.random() < 0.2:
            return Request(POOL, name=rng.choice(self._surroundings.names), ttl_seconds=ttl)
        return Request(POOL, count=rng.randint(1, habits.most), ttl_seconds=ttl)

    def _release(self, claim_key: str, handle: str, leases: Sequence[Lease], callers: int) -> None:
        accesses = [self._access, *(self._open() for _ in range(callers - 1))]
        frees = [partial(each.engine.free, claim_key) for each in accesses]
        give_back(self._recorder, handle, leases, frees, unsure=BackendUnreachable)
        for access in accesses[1:]:
            access.gateway.close()

    def _open(self) -> Access:
        surroundings = self._surroundings
        seconds = surroundings.habits.patience
        return Access(
            self._endpoints,
            surroundings.prefix,
            state_id=self._state_id,
            seconds=seconds,
            pause=time.sleep,
            lost=self._note_expired,
        )

    def _note_expired(self, claim_key: str, names: Sequence[str]) -> None:
        for name in names:
            self._recorder.note("expired", self._access.context.with_state_id(claim_key), name)
