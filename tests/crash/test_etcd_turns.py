"""Many processes on a pool in etcd with a pace, or with priorities; some of them are killed.

etcd itself tells what happened, change by change, so that each grant is judged by what was there
right before it. A full size, as people may have it, where it is also judged how long all of it
took: LEASECTL_TEST_FULL_TURNS=1.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.model import Request
from leasectl.system.clock import boottime_seconds
from tests.kit.etcd.access import Access
from tests.kit.etcd.chronicle import Chronicle, Grant, chronicle, grants_in
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork
from tests.kit.pacing import middle_gap, too_fast
from tests.kit.waits import eventually

FULL = bool(os.environ.get("LEASECTL_TEST_FULL_TURNS"))
TTL_SECONDS = 2.0
# The chronicle hears of a grant a little after it, and not always after the same time.
HEARD_WITHIN_SECONDS = 0.1 if FULL else 0.3
PACE = 2.0 if FULL else 1.0
MANY = 40 if FULL else 6


class Crowd:
    """Processes that each take something once, and what became of it.

    Args:
        etcd: On which server.
        prefix: Below which.
        written: What happens there.
    """

    def __init__(self, etcd: EtcdServer, prefix: str, written: Chronicle) -> None:
        self._etcd = etcd
        self._prefix = prefix
        self._written = written
        self._own = self._access()
        self._pids: list[int] = []
        self._singles: list[int] = []

    def pool(self, capacity: int, settings: PoolSettings) -> None:
        names = [f"T--{number}" for number in range(capacity)]
        self._own.pools.create_pool("T", names, settings=settings)

    def add(self, request: Request, *, hold: float) -> None:
        """One more, in a process of its own."""
        number = len(self._pids)

        def take() -> None:
            access = self._access()
            access.acquire(f"one-{number}", request)
            time.sleep(hold)
            access.engine.free(f"one-{number}")

        self._pids.append(fork(take))
        if request.count == 1:
            self._singles.append(self._pids[-1])

    def kill_some(self, rng: random.Random, number: int, *, pause: float) -> None:
        """KILL some, one after the other; none that asked for several."""
        for pid in rng.sample(self._singles, number):
            time.sleep(rng.random() * pause)
            os.kill(pid, signal.SIGKILL)

    def wait(self) -> list[int]:
        """Wait for the end of all; how they ended."""
        return [ending(pid) for pid in self._pids]

    def grants(self) -> list[Grant]:
        """What was granted so far, and what can be said against it."""
        written = self._written.all_until_now(self._own.gateway)
        return grants_in(written, self._own.keys, "T")

    def is_over(self) -> bool:
        """Nobody holds anything, nobody waits."""
        pool = self._own.pool()
        return not pool.held and not pool.queue

    def _access(self) -> Access:
        return Access(self._etcd.endpoints, self._prefix, state_id=f"host-{os.getpid()}")


@pytest.fixture
def crowd(etcd: EtcdServer, prefix: str) -> Iterator[Crowd]:
    with chronicle(etcd.endpoints[0], prefix) as written:
        yield Crowd(etcd, prefix, written)


def check_pace(grants: Sequence[Grant], *, burst: int = 1) -> None:
    times = [grant.heard_at for grant in grants]
    assert too_fast(times, pace=PACE, burst=burst, slack=HEARD_WITHIN_SECONDS) == []


def check_order(grants: Sequence[Grant]) -> None:
    assert [grant for grant in grants if grant.passed] == []


def test_a_crowd_is_let_in_at_the_pace_and_in_its_order(crowd: Crowd) -> None:
    crowd.pool(5, PoolSettings(pace_seconds=PACE))
    start = boottime_seconds()
    for _ in range(MANY):
        crowd.add(Request("T", ttl_seconds=60.0), hold=PACE / 2)
    assert set(crowd.wait()) == {0}
    grants = crowd.grants()
    assert len(grants) == MANY
    check_pace(grants)
    check_order(grants)
    times = [grant.heard_at for grant in grants]
    took = times[-1] - times[0]
    print(
        f"{MANY} at a pace of {PACE:g}s: {took:.3f}s, {took / ((MANY - 1) * PACE):.4f} of the least"
    )
    assert middle_gap(times) <= 1.5 * PACE
    if FULL:
        assert took <= 1.1 * (MANY - 1) * PACE
        assert times[0] - start < 5.0


@pytest.mark.parametrize("burst", [1, 3])
def test_the_pace_is_kept_whoever_is_killed(crowd: Crowd, burst: int) -> None:
    rng = random.Random(burst)
    crowd.pool(5, PoolSettings(pace_seconds=PACE, burst=burst))
    for _ in range(MANY):
        crowd.add(Request("T", ttl_seconds=TTL_SECONDS), hold=rng.random() * PACE)
    crowd.kill_some(rng, MANY // 3, pause=PACE * 2)
    crowd.wait()
    grants = crowd.grants()
    assert len(grants) >= MANY - MANY // 3
    check_pace(grants, burst=burst)
    check_order(grants)


def test_each_grant_goes_to_the_best_who_waits(crowd: Crowd) -> None:
    rng = random.Random(7)
    many = 60 if FULL else 16
    crowd.pool(3, PoolSettings(aging_seconds=1.5))
    for number in range(many):
        count = 3 if number == many // 3 else 1
        priority = 3 if count == 3 else rng.randint(-5, 5)
        request = Request("T", count=count, priority=priority, ttl_seconds=TTL_SECONDS)
        crowd.add(request, hold=rng.random() * 0.3)
        time.sleep(rng.random() * 0.1)
    crowd.kill_some(rng, many // 6, pause=0.3)
    crowd.wait()
    grants = crowd.grants()
    assert len(grants) >= many - many // 6
    check_order(grants)
    assert any(len(grant.names) == 3 for grant in grants)
    eventually(crowd.is_over)


def test_no_two_come_at_once_that_saw_the_same(crowd: Crowd) -> None:
    """Each waits for a name of its own, so that none waits behind another for a resource."""
    crowd.pool(5, PoolSettings(pace_seconds=PACE))
    for number in range(5):
        crowd.add(Request("T", name=f"T--{number}", ttl_seconds=60.0), hold=PACE)
    assert set(crowd.wait()) == {0}
    check_pace(crowd.grants())
    check_order(crowd.grants())
