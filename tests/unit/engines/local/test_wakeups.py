"""Who is woken as a queue changes, by what is said to their pipes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.queues import LocalQueues
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.model import Request
from leasectl.state.directory import State
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, this_process
from tests.kit import recorded
from tests.kit.forking import ending, fork
from tests.kit.support import ManualClock

AGING = 60.0


class Queue:
    """Those who wait for a pool of one that is held, in this process."""

    def __init__(self, state: State, time: ManualClock, aging: float) -> None:
        self._state, self._time = state, time
        self._engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        pools = LocalSides(state, lost=lambda *_: None, clock=time.clock).pools
        pools.create_pool("T", ["T--0"], settings=PoolSettings(aging_seconds=aging))
        self._waiters: list[LocalWaiter] = []
        self.come()

    def come(self, priority: int = 0) -> LocalWaiter:
        """Ask as another; it has looked once when this returns."""
        key, request = f"h{len(self._waiters)}", Request("T", priority=priority)
        now = self._time.clock.elapsed()
        waiter = recorded.waiter(self._engine, self._state, key, request, now=now)
        self._waiters.append(waiter)
        with self._engine.atomic():
            waiter.enqueue()
            waiter.claim()
        return waiter

    def look(self, waiter: LocalWaiter) -> None:
        """Have one look by itself, as it is time."""
        with self._engine.atomic():
            waiter.claim()

    def woken(self) -> list[LocalWaiter]:
        """Have those look who were woken."""
        found = []
        for waiter in self._waiters[1:]:
            fds, _ = waiter.listen(())
            if any(is_readable(fd, 0) for fd in fds):
                found.append(waiter)
        for waiter in found:
            waiter.heard(waiter.listen(())[0])
            self.look(waiter)
        return found

    def suspend_first(self) -> None:
        """Have the others pass the first of those who wait, as it doesn't come."""
        queues = LocalQueues(self._state, lost=lambda *_: None, clock=self._time.clock)
        with contextlib.closing(queues.in_order("T")) as tickets:
            first = next(tickets)
        with self._engine.atomic():
            suspend(queues, "T", first)

    def suspended(self) -> int:
        """How many are passed so."""
        return len(self._state.query("SELECT number FROM suspended"))

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.close()


@pytest.fixture(params=[0.0, AGING], ids=["without aging", "with aging"])
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


@pytest.mark.parametrize("queue", [AGING], indirect=True, ids=["with aging"])
def test_of_two_that_pass_another_at_one_instant_the_second_wakes_it(
    queue: Queue, manual_clock: ManualClock
) -> None:
    first, second = queue.come(), queue.come()
    manual_clock.advance(AGING / 2)
    better = queue.come(1)
    while queue.woken():
        pass
    manual_clock.advance(AGING / 2)
    queue.look(first)
    assert queue.woken() == [second]
    assert queue.woken() == [better]
    assert queue.woken() == []


def test_one_that_was_passed_keeps_others_back_again_as_soon_as_it_looks(queue: Queue) -> None:
    first, second = queue.come(), queue.come()
    queue.suspend_first()
    assert queue.suspended() == 1
    queue.look(second)
    second.heard(second.listen(())[0])
    queue.look(first)
    assert queue.suspended() == 0
    assert second in queue.woken()  # it is behind that one again


def test_who_listens_hears_whether_it_was_called_or_somebody_has_ended(
    queue: Queue,
) -> None:
    pid = fork(signal.pause)
    other = identify(pid)
    waiter = queue.come()
    pipe, _ = waiter.listen(())
    fds, any_ended = waiter.listen([other, this_process()])
    assert not any_ended
    (pidfd,) = fds - pipe  # not its own: it would know
    assert not waiter.heard(set())
    assert not waiter.heard(set(pipe))
    os.kill(pid, signal.SIGKILL)
    ending(pid)
    assert is_readable(pidfd, 0)
    assert waiter.heard({pidfd})
    assert waiter.listen([other]) == (pipe, True)


def test_a_call_is_heard_once(queue: Queue) -> None:
    waiter = queue.come()
    (pipe,) = waiter.listen(())[0]
    queue.come(1)
    assert is_readable(pipe, 0)
    waiter.heard(set())
    assert is_readable(pipe, 0)
    waiter.heard({pipe})
    assert not is_readable(pipe, 0)
