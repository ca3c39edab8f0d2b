"""Requests to servers, one thread for each server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from leasectl.errors import LeaseError, out_of_files
from leasectl.system.clock import Clock
from leasectl.system.threads import NoThread, start_thread
from leasectl.system.wakeup import Wakeup

Server = TypeVar("Server", bound=Hashable)
Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")


class Outcome(Generic[Job, Result]):
    """The outcome of a job. No dataclass: each keeper would load the code that makes those.

    Args:
        job: The job.
        sent_at: When it was begun, CLOCK_BOOTTIME in seconds.
        value: What it returned; None if it failed.
        error: Why it failed; None if it didn't.
    """

    def __init__(
        self,
        job: Job,
        sent_at: float,
        value: Result | None = None,
        error: LeaseError | None = None,
    ) -> None:
        self.job = job
        self.sent_at = sent_at
        self.value = value
        self.error = error

    def result(self) -> Result:
        """Return what the job returned, or raise its error."""
        if self.error is not None:
            raise self.error
        return cast("Result", self.value)


class RequestThreads(Generic[Server, Job, Result]):
    """Does jobs in threads: those for one server one after the other, those for several at once.

    It needs no thread and no descriptor before the first job or `open`.

    Args:
        begin: Called in a server's own thread before its first job; returns a function that does a
            job.
        clock: Where times come from.
    """

    def __init__(self, begin: Callable[[Server], Callable[[Job], Result]], *, clock: Clock) -> None:
        self._begin = begin
        self._clock = clock
        self._wakeup: Wakeup | None = None  # there is none before the first job
        self._outcomes: SimpleQueue[Outcome[Job, Result]] = SimpleQueue()
        self._queues: dict[Server, SimpleQueue[Job | None]] = {}
        self._under_way: set[Job] = set()

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first job."""
        return None if self._wakeup is None else self._wakeup.fd

    def send(self, server: Server, job: Job) -> None:
        """Send a job to its thread, unless the same job is under way.

        Where no thread can be started, the outcome says so: it is tried again as after any failure.

        Raises:
            LeaseError: No outcome can be waited for, as no descriptor is left.
        """
        if job in self._under_way:
            return
        wakeup = self._open_wakeup()
        self._under_way.add(job)
        try:
            self._start(server, wakeup)
        except NoThread as error:
            self._outcomes.put(Outcome(job, self._clock.elapsed(), error=error))
            wakeup.set()
            return
        self._queues[server].put(job)

    def open(self, server: Server) -> None:
        """Start the thread of a server before its first job, while there is one left for it.

        Raises:
            LeaseError: No thread can be started, or no descriptor is left.
        """
        self._start(server, self._open_wakeup())

    def _open_wakeup(self) -> Wakeup:
        try:
            self._wakeup = self._wakeup or Wakeup()
        except OSError as error:
            raise out_of_files(error) from error
        return self._wakeup

    def _start(self, server: Server, wakeup: Wakeup) -> None:
        if server not in self._queues:
            jobs: SimpleQueue[Job | None] = SimpleQueue()
            start_thread("requests", partial(self._work, server, jobs, wakeup))
            self._queues[server] = jobs

    @property
    def under_way(self) -> frozenset[Job]:
        """The jobs that were sent and whose outcomes weren't taken yet."""
        return frozenset(self._under_way)

    def outcomes(self) -> list[Outcome[Job, Result]]:
        """Take the outcomes that have come so far."""
        if self._wakeup is None:
            return []
        self._wakeup.clear()
        found = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._outcomes.get_nowait())
        self._under_way.difference_update(each.job for each in found)
        return found

    def close(self) -> None:
        """Let each thread end after its present job."""
        if self._wakeup is not None:
            self._wakeup.close()
        for jobs in self._queues.values():
            jobs.put(None)

    def _work(self, server: Server, jobs: SimpleQueue[Job | None], wakeup: Wakeup) -> None:
        run: Callable[[Job], Result] | None = None
        while True:
            job = jobs.get()
            if job is None:
                return
            sent_at = self._clock.elapsed()
            try:
                if run is None:
                    run = self._begin(server)
                outcome = Outcome(job, sent_at, run(job))
            except LeaseError as error:
                outcome = Outcome(job, sent_at, error=error)
            except BaseException as error:  # without an outcome, the caller would wait for ever
                outcome = Outcome(job, sent_at, error=LeaseError(f"unexpected: {error!r}"))
            self._outcomes.put(outcome)
            wakeup.set()
