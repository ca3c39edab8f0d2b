"""Many turns in one thread, in a time that passes when nobody has anything left to do."""

from __future__ import annotations

import heapq
import itertools
from typing import Callable

from leasectl.backends.contract import Turn
from leasectl.errors import LeaseError
from leasectl.system.poll import Sleep
from tests.kit.support import ManualClock


class Waker:
    """What wakes a turn here: no descriptor, just a number."""

    def __init__(self, fd: int, rung: list[int]) -> None:
        self.fd = fd
        self._rung = rung

    def set(self) -> None:
        self._rung.append(self.fd)

    def clear(self) -> None:
        """A number says nothing for longer than it is heard."""

    def close(self) -> None:
        """There is nothing behind it."""


class VirtualTime:
    """Runs turns and whatever was arranged, in the order of their times.

    Attributes:
        clock: What the store takes its time from.
        sleeps: How often a turn has slept.
        failures: What turns have ended with instead of leases.
    """

    def __init__(self) -> None:
        self._manual = ManualClock()
        self.clock = self._manual.clock
        self.sleeps = 0
        self.failures: list[LeaseError] = []
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._rung: list[int] = []
        self._sleeping: dict[int, _Sleeper] = {}  # by the numbers of their wakers

    def new_waker(self) -> Waker:
        """What wakes one more waiter."""
        return Waker(next(self._order), self._rung)

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Arrange for something to be done in some time."""
        heapq.heappush(self._agenda, (self.clock.elapsed() + seconds, next(self._order), do))

    def begin(self, turn: Turn, then: Callable[[], object]) -> None:
        """Take a turn up to its first sleep; once it has its leases, something else is done."""
        _Sleeper(self, turn, then).resume(None)

    def run(self) -> None:
        """Go on until nothing is left to be done."""
        while self._rung or self._agenda:
            if self._rung:
                number = self._rung.pop()
                if number in self._sleeping:
                    self._sleeping.pop(number).resume({number})
                continue
            at, _, do = heapq.heappop(self._agenda)
            self._manual.advance(max(0.0, at - self.clock.elapsed()))
            do()

    def sleep(self, sleeper: _Sleeper, wanted: Sleep) -> None:
        """Have a turn woken by its waker, or when its time has come."""
        self.sleeps += 1
        (number,) = wanted.fds
        self._sleeping[number] = sleeper
        if wanted.until is not None:
            limited = self.sleeps

            def time_is_up() -> None:
                if sleeper.limited == limited and self._sleeping.pop(number, None) is not None:
                    sleeper.resume(set())

            sleeper.limited = limited
            self.after(wanted.until - self.clock.elapsed(), time_is_up)


class _Sleeper:
    """A turn that is under way, and the number of its last sleep that has a limit."""

    def __init__(self, time: VirtualTime, turn: Turn, then: Callable[[], object]) -> None:
        self._time = time
        self._turn = turn
        self._then = then
        self.limited = 0

    def resume(self, woken: set[int] | None) -> None:
        try:
            wanted = next(self._turn) if woken is None else self._turn.send(woken)
        except StopIteration:
            self._then()
        except LeaseError as error:
            self._time.failures.append(error)
        else:
            self._time.sleep(self, wanted)
