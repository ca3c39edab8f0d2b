"""Who is woken as a queue changes, by what is said to their pipes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.pools import LocalPools
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.model import Claimant, Request
from leasectl.state.directory import State
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from tests.kit.recorded import record
from tests.kit.support import ManualClock

AGING = 60.0


class Queue:
    """Those who wait for a pool of one that is held, in this process."""

    def __init__(self, state: State, time: ManualClock, aging: float) -> None:
        self._state, self._time = state, time
        self._engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        pools = LocalPools(state, lost=lambda *_: None, clock=time.clock)
        pools.create_pool("T", ["T--0"], settings=PoolSettings(aging_seconds=aging))
        self._waiters: list[LocalWaiter] = []
        self.come()

    def come(self, priority: int = 0) -> LocalWaiter:
        """Ask as another; it has looked once when this returns."""
        key, request = f"h{len(self._waiters)}", Request("T", priority=priority)
        record(self._state, key, request, now=self._time.clock.elapsed())
        claimant = Claimant(key, key, request, this_process())
        waiter = self._engine.waiter(claimant, until=None)
        self._waiters.append(waiter)
        with self._engine.atomic():
            waiter.enqueue()
            waiter.claim()
        return waiter

    def woken(self) -> list[LocalWaiter]:
        """Have those look who were woken."""
        found = []
        for waiter in self._waiters[1:]:
            fds, _ = waiter.listen(())
            if any(is_readable(fd, 0) for fd in fds):
                found.append(waiter)
        for waiter in found:
            waiter.heard(waiter.listen(())[0])
            with self._engine.atomic():
                waiter.claim()
        return found

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.close()


@pytest.fixture(params=[0.0, AGING], ids=["without ageing", "with ageing"])
def queue(
    state_dir: Path, manual_clock: ManualClock, request: pytest.FixtureRequest
) -> Iterator[Queue]:
    with contextlib.closing(State.open(str(state_dir))) as state:
        found = Queue(state, manual_clock, request.param)
        with contextlib.closing(found):
            yield found


def test_a_better_newcomer_wakes_the_first_below_it_who_wakes_nobody(queue: Queue) -> None:
    first, *_ = [queue.come() for _ in range(3)]
    queue.come(1)
    assert queue.woken() == [first]
    assert queue.woken() == []


def test_so_does_one_that_comes_in_between(queue: Queue) -> None:
    queue.come(2)
    first, *_ = [queue.come() for _ in range(3)]
    queue.woken()
    queue.come(1)
    assert queue.woken() == [first]
    assert queue.woken() == []
