"""Threads for calls to another server, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled, LeaseError
from leasectl.leases.acquire import acquire_served
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.wakeup import Wakeup

Result = TypeVar("Result")

# For what is asked beside those who wait: it is soon over.
_FOR_OTHERS = 16


# A thread that waits for a lease opens the state directory and has connections of its own.
_FILES_PER_THREAD = 10
# Each asks the server behind us again and again, which has to bear them all.
_MOST_THREADS = 250
OTHER_FILES = 64


def most_files() -> int:
    """Return how many files this process may open, once it may open as many as it can."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def most_waits() -> int:
    """Return how many may wait at once where a thread waits for each."""
    return max(1, min((most_files() - OTHER_FILES) // _FILES_PER_THREAD, _MOST_THREADS))


class TooManyWait(LeaseError):
    """A thread for one more would be one too many."""


class ServiceThreads:
    """Does things with the state directory and backend that are served, opened by each thread.

    Those that have come to their end are kept for the next.

    Args:
        open_another: Opens them for the thread that calls it.
        most_waits: How many may wait for leases at once; 0 where the event loop waits for them.
    """

    def __init__(self, open_another: Callable[[], Service], *, most_waits: int) -> None:
        self._open_another = open_another
        self._most_waits = most_waits
        self._waiting = 0
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(most_waits + _FOR_OTHERS, "leases")

    async def run(self, step: Callable[[Service], Result]) -> Result:
        """Do something that is soon over; whatever it raises is raised here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: step(self._service()))

    async def acquire(
        self,
        request: Request,
        *,
        handle_id: str,
        guard: Process | None,
        patience: Patience,
        given_up: Wakeup,
    ) -> Handle:
        """Wait for leases.

        Args:
            request: What is wanted.
            handle_id: The id of the new handle; there must be no record of it.
            guard: The process whose death releases the handle.
            patience: How long to wait; what it is called with comes from the thread.
            given_up: Set when no client wants them any more; closed when it isn't needed.

        Raises:
            TooManyWait: There is no thread for it.
            Cancelled: It was given up, and what had arrived was given back, or will be.
            LeaseError: As `acquire_served`.
        """
        if self._waiting >= self._most_waits:
            given_up.close()
            raise TooManyWait(f"{self._waiting} requests wait already; ask again later")

        def acquire(service: Service) -> Handle:
            interrupt = Interrupt(given_up.fd, READABLE, _raise_given_up)
            try:
                return acquire_served(
                    service,
                    request,
                    handle_id=handle_id,
                    guard=guard,
                    patience=patience._replace(interrupts=(interrupt,)),
                )
            finally:
                given_up.close()

        self._waiting += 1
        try:
            return await self.run(acquire)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Begin nothing more. What is under way goes on until it is over; the process waits."""
        self._threads.shutdown(wait=False)

    def _service(self) -> Service:
        service: Service | None = getattr(self._own, "service", None)
        if service is None:
            service = self._own.service = self._open_another()
        return service


def _raise_given_up() -> None:
    raise Cancelled("its client has given it up")
