"""What tests of the service do, in this process and with a clock that is set by hand.

There is no keeper: tests do themselves what it would do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any, Callable, TypeVar

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.leases.acquire import acquire, announce, reacquire
from leasectl.leases.recovery import due
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request
from leasectl.state.directory import State
from tests.kit.support import ManualClock
from tests.kit.waits import eventually, join

T = TypeVar("T")
ONE = Request("T")


class Desk:
    """What tests do with handles.

    Args:
        directory: The state directory.
        time: The clock of all services here.
    """

    def __init__(self, directory: Path, time: ManualClock) -> None:
        self.directory = directory
        self.time = time
        self.caller = Caller("job/1", "host")
        self.state = State.open(str(directory))
        self.service = self.open(self.state)
        self._threads: list[Thread] = []

    def open(self, state: State, caller: Caller | None = None, url: str = "local:") -> Service:
        return Service(state, Context(url, caller=caller or self.caller, clock=self.time.clock))

    def as_caller(self, caller: Caller, url: str = "local:") -> Service:
        """The same state directory, for another caller."""
        return self.open(self.state, caller, url)

    def pool(self, capacity: int, pool_type: str = "T") -> None:
        self.service.pools.create_pool(
            pool_type, [f"{pool_type}--{number:02d}" for number in range(capacity)]
        )

    def acquire(self, request: Request = ONE, *, wait: float | None = 0, **more: Any) -> Handle:
        """Acquire and tell."""
        handle = acquire(self.service, request, patience=Patience(wait_seconds=wait), **more)
        announce(self.service, handle)
        return self.service.handles.require(handle.id)

    def reacquire(self, handle: Handle, *, wait: float | None = 0) -> Handle:
        """Reacquire and tell."""
        again = reacquire(self.service, handle.id, patience=Patience(wait_seconds=wait))
        announce(self.service, again)
        return self.service.handles.require(handle.id)

    def beside(self, work: Callable[[Service], T]) -> Future[T]:
        """Do something in a thread, with a service of its own."""
        ending: Future[T] = Future()

        def run() -> None:
            try:
                with contextlib.closing(State.open(str(self.directory))) as state:
                    ending.set_result(work(self.open(state)))
            except BaseException as error:
                ending.set_exception(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)
        return ending

    def acquire_beside(
        self, request: Request = ONE, *, wait: float | None = None
    ) -> Future[Handle]:
        """Start to acquire; returns once it is in the queue."""
        return self._in_queue(
            lambda service: acquire(service, request, patience=Patience(wait_seconds=wait))
        )

    def reacquire_beside(self, handle: Handle, *, wait: float | None = None) -> Future[Handle]:
        """Start to reacquire; returns once it is in the queue."""
        return self._in_queue(
            lambda service: reacquire(service, handle.id, patience=Patience(wait_seconds=wait))
        )

    def _in_queue(self, work: Callable[[Service], Handle]) -> Future[Handle]:
        before = set(self.tickets())
        ending = self.beside(work)
        eventually(lambda: ending.done() or set(self.tickets()) - before)
        return ending

    def put_ticket(self, number: int, process: Process | None = None, pool_type: str = "T") -> None:
        """Put a ticket of a waiter that never comes at the end of the queue of a pool.

        Args:
            number: Its own, higher than all before.
            process: That waits with it, as far as anybody knows.
            pool_type: Whose queue.
        """
        owner = f"T-{number}"
        self.state.db.execute("UPDATE pool SET last_ticket = ? WHERE type = ?", (number, pool_type))
        self.state.db.execute(
            "INSERT INTO ticket VALUES (?, ?, ?, ?, 1, 0, ?, 'nobody-listens')",
            (pool_type, number, owner, f"job/1/host/{owner}", process and process.encode()),
        )

    def tickets(self) -> list[int]:
        return [number for (number,) in self.state.query("SELECT number FROM ticket")]

    def held(self) -> dict[str, str]:
        """The held resources and the ids of the handles that hold them."""
        rows = self.state.query("SELECT name, owner FROM resource WHERE owner IS NOT NULL")
        return {name: owner for name, owner in rows}  # noqa: C416

    def record(self, handle: Handle) -> Handle:
        return self.service.handles.require(handle.id)

    def names_file(self, handle: Handle) -> str:
        return Path(self.state.names_path(handle.id)).read_text()

    def release_due(self) -> list[Sequence[str]]:
        """What the keeper does when it looks."""
        return [release(self.service, target) for target in due(self.service)]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.service.pools.delete_pool("T", force=True)  # ends those that still wait
        for thread in self._threads:
            join(thread)
        self.state.close()


@pytest.fixture
def desk(state_dir: Path, manual_clock: ManualClock) -> Iterator[Desk]:
    """Handles in a state directory without a keeper."""
    desk = Desk(state_dir, manual_clock)
    yield desk
    desk.close()
