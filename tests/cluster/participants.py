"""Those who want leases on etcd: they take, use, renew and give back, and write down what they saw.

A participant trusts its lease for four fifths of the ttl, counted from the sending of the last
renewal that succeeded. Renewing goes on beside the use, so that a request that hangs never keeps
it from stopping in time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, NamedTuple

from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.model import Lease, Request
from leasectl.system.clock import Clock
from tests.kit.etcd.access import Access
from tests.kit.history import Recorder

TRUSTED = 4 / 5  # of the ttl; the rest is the margin
CLOCK = Clock()
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
        """Give back, as one caller or as several at once, and write down who was told what."""
        accesses = [self._access, *(self._open() for _ in range(callers - 1))]
        with ThreadPoolExecutor(callers) as threads:
            freeing = [threads.submit(each.engine.free, claim_key) for each in accesses]
        told: set[str] = set()
        try:
            for each in freeing:
                names = each.result()
                told.update(names)
                mine = [lease for lease in leases if lease.name in names]
                self._recorder.write("released", handle, mine)
        except BackendUnreachable as error:
            self._recorder.note("not-released", handle, type(error).__name__)
        else:
            missing = [lease for lease in leases if lease.name not in told]
            self._recorder.write("unreleased", handle, missing)
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
            self._recorder.note("expired", self._access.keys.with_state_id(claim_key), name)


class Use:
    """What was granted, for as long as its holder believes in it.

    Args:
        recorder: Told when the use begins, when it is prolonged, and when it ends.
        handle: Whose it is.
        leases: What was granted.
    """

    def __init__(self, recorder: Recorder, handle: str, leases: Sequence[Lease]) -> None:
        ttl = leases[0].lease_duration_seconds
        assert ttl is not None
        self._ttl = ttl
        self._recorder = recorder
        self._handle = handle
        self._leases = leases
        renewed_ago = CLOCK.wall() - leases[0].renew_time
        self._until = CLOCK.elapsed() - renewed_ago + TRUSTED * ttl
        self._changed = threading.Condition()
        self._is_over = False
        recorder.write("granted", handle, leases, until=self._until)

    def last(self, seconds: float, renew: Callable[[], Sequence[str]]) -> None:
        """Use it for so long, or until it is lost.

        Args:
            seconds: How long.
            renew: Renews it; returns what is still held.
        """
        end = CLOCK.elapsed() + seconds
        threading.Thread(target=self._keep, args=(renew,), daemon=True).start()
        with self._changed:
            while (left := min(end, self._until) - CLOCK.elapsed()) > 0:
                self._changed.wait(left)
            self._is_over = True
            kind = "releasing" if end <= self._until else "lost"
            self._recorder.write(kind, self._handle, self._leases)
            self._changed.notify_all()

    def _keep(self, renew: Callable[[], Sequence[str]]) -> None:
        pause = self._ttl / 3
        while not self._ends_within(pause):
            sent = CLOCK.elapsed()
            try:
                held = renew()
            except BackendUnreachable:
                pause = self._ttl / 15
                continue
            pause = self._ttl / 3
            with self._changed:
                if not self._is_over:
                    self._renewed(sent, held)

    def _ends_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, seconds)

    def _renewed(self, sent: float, held: Sequence[str]) -> None:
        if {lease.name for lease in self._leases} <= set(held):
            self._until = max(self._until, sent + TRUSTED * self._ttl)
            self._recorder.write("renewed", self._handle, self._leases, until=self._until)
        else:
            self._until = 0.0
        self._changed.notify_all()
