"""Many turns in one thread, in a time that passes when nobody has anything left to do."""

from __future__ import annotations

import heapq
import itertools

from leasectl.backends.contract import Turn
from leasectl.errors import LeaseError
from leasectl.system.clock import Clock
from leasectl.system.poll import Sleep
from leasectl.typed.hints import Callable


class VirtualWaker:
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

    What is due at the same time happens in the order in which it was arranged, so that the same
    is the same again.

    Args:
        start: What the clock shows at first, as elapsed time, in seconds.
        epoch: The wall clock at the elapsed time 0, in seconds since the epoch.

    Attributes:
        clock: What the store takes its time from.
        sleeps: How often a turn has slept.
        failures: What turns have ended with instead of leases.
    """

    def __init__(self, start: float = 0.0, *, epoch: float = 0.0) -> None:
        self._now = start
        self.clock = Clock(elapsed=lambda: self._now, wall=lambda: epoch + self._now)
        self.sleeps = 0
        self.failures: list[LeaseError] = []
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._rung: list[int] = []
        self._sleeping: dict[int, _Sleeper] = {}  # by the numbers of their wakers

    def new_waker(self) -> VirtualWaker:
        """What wakes one more waiter."""
        return VirtualWaker(next(self._order), self._rung)

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Arrange for something to be done in some time."""
        self.at(self._now + seconds, do)

    def at(self, time: float, do: Callable[[], object]) -> None:
        """Arrange for something to be done at a time of the clock, at once if that is over."""
        heapq.heappush(self._agenda, (time, next(self._order), do))

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
            time, _, do = heapq.heappop(self._agenda)
            self._now = max(self._now, time)
            do()

    def sleep(self, sleeper: _Sleeper, wanted: Sleep) -> None:
        """Have a turn woken by its waker, or when its time has come."""
        self.sleeps += 1
        (number,) = wanted.fds
        self._sleeping[number] = sleeper
        sleeper.sleep = this = self.sleeps
        if wanted.until is not None:

            def time_is_up() -> None:
                if sleeper.sleep == this and self._sleeping.pop(number, None) is not None:
                    sleeper.resume(set())

            self.at(wanted.until, time_is_up)


class _Sleeper:
    """A turn that is under way, and the number of its last sleep."""

    def __init__(self, time: VirtualTime, turn: Turn, then: Callable[[], object]) -> None:
        self._time = time
        self._turn = turn
        self._then = then
        self.sleep = 0

    def resume(self, woken: set[int] | None) -> None:
        try:
            wanted = next(self._turn) if woken is None else self._turn.send(woken)
        except StopIteration:
            self._then()
        except LeaseError as error:
            self._time.failures.append(error)
        else:
            self._time.sleep(self, wanted)
