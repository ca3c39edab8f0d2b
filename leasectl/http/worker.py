"""A thread that sends requests, and can be abandoned."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from leasectl.system.threads import start_thread


class Worker:
    """Does one thing after the other; a new thread for each costs half as much as a request."""

    def __init__(self) -> None:
        self._assigned: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.thread = start_thread("worker", self._run, repeats=True)

    def is_alive(self) -> bool:
        """Tell whether the thread is there; it doesn't outlive a fork."""
        return self.thread.is_alive()

    def _run(self) -> None:
        while True:
            work = self._assigned.get()
            if work is None:
                return
            work()
            del work  # or what it has in hand would stay until there is more to do

    def assign(self, work: Callable[[], object]) -> None:
        """Assign a job, which begins after the one before."""
        self._assigned.put(work)

    def dismiss(self) -> None:
        """End the thread after its current job."""
        self._assigned.put(None)
