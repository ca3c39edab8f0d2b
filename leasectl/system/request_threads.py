"""Requests to servers, made by threads: a server that hangs holds up nobody but itself."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Callable, Generic, TypeVar

from leasectl.errors import LeaseError
from leasectl.system.clock import Clock
from leasectl.system.wakeup import Wakeup

Where = TypeVar("Where", bound=Hashable)
Job = TypeVar("Job", bound=Hashable)


@dataclass(frozen=True)
class Outcome(Generic[Job]):
    """What came of an errand.

    Args:
        job: Which it was.
        sent_at: When it was begun, CLOCK_BOOTTIME in seconds.
        names: What it returned; None when it failed.
        error: Why it failed.
    """

    job: Job
    sent_at: float
    names: tuple[str, ...] | None = None
    error: LeaseError | None = None

    def result(self) -> tuple[str, ...]:
        """What it returned, or raise why it failed."""
        if self.names is None:
            raise self.error or LeaseError("an errand came to nothing")
        return self.names


class RequestThreads(Generic[Where, Job]):
    """Runs errands, those to one place one after the other, those to different ones at once.

    Args:
        begin: Called in a place's own thread before its first errand; returns what does one.
        clock: Where times come from.
    """

    def __init__(
        self, begin: Callable[[Where], Callable[[Job], tuple[str, ...]]], *, clock: Clock
    ) -> None:
        self._begin = begin
        self._clock = clock
        self._wakeup = Wakeup()
        self._outcomes: queue.SimpleQueue[Outcome[Job]] = queue.SimpleQueue()
        self._asked: dict[Where, queue.SimpleQueue[Job | None]] = {}
        self._under_way: set[Job] = set()

    @property
    def fd(self) -> int:
        """A descriptor that can be read when there are outcomes."""
        return self._wakeup.fd

    def send(self, where: Where, job: Job) -> None:
        """Have an errand run, unless the same is under way."""
        if job in self._under_way:
            return
        self._under_way.add(job)
        if where not in self._asked:
            asked: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
            threading.Thread(
                target=self._work, args=(where, asked), name="leasectl-errands", daemon=True
            ).start()
            self._asked[where] = asked
        self._asked[where].put(job)

    @property
    def under_way(self) -> frozenset[Job]:
        """What was sent and hasn't been taken from `outcomes` yet."""
        return frozenset(self._under_way)

    def outcomes(self) -> list[Outcome[Job]]:
        """Take what has come so far."""
        self._wakeup.clear()
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._outcomes.get_nowait())
        self._under_way.difference_update(each.job for each in found)
        return found

    def close(self) -> None:
        """Let the threads end, each after what it is at."""
        self._wakeup.close()
        for asked in self._asked.values():
            asked.put(None)

    def _work(self, where: Where, asked: queue.SimpleQueue[Job | None]) -> None:
        run: Callable[[Job], tuple[str, ...]] | None = None
        while True:
            job = asked.get()
            if job is None:
                return
            sent_at = self._clock.elapsed()
            try:
                if run is None:
                    run = self._begin(where)
                outcome = Outcome(job, sent_at, run(job))
            except LeaseError as error:
                outcome = Outcome(job, sent_at, error=error)
            except Exception as error:  # whoever waits for the outcome would wait for ever
                outcome = Outcome(job, sent_at, error=LeaseError(f"unexpected: {error!r}"))
            self._outcomes.put(outcome)
            self._wakeup.set()
