"""Those who wait for the pools of a desk, in this process: each looks when a test has it look."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from leasectl.engines.contract import Outlook
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.queues import LocalQueues, Waiting
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.model import Process, Request
from leasectl.state.named_pipe import listen
from leasectl.system.poll import is_readable
from tests.kit import recorded
from tests.kit.desk import Desk


class Line:
    """Who waits at a desk.

    Args:
        desk: It.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.engine = LocalEngine(desk.state, lost=desk.service.losses.tell, clock=desk.time.clock)
        self.queues = LocalQueues(desk.state, lost=lambda *_: None, clock=desk.time.clock)
        self._waiters: dict[str, LocalWaiter] = {}
        self._witness = listen(desk.state.witness_pipe)

    def waiter(self, key: str, request: Request) -> LocalWaiter:
        """Who waits for a handle of that id, with no ticket yet."""
        now = self.desk.time.clock.elapsed()
        waiter = recorded.waiter(self.engine, self.desk.state, key, request, now=now)
        self._waiters[key] = waiter
        return waiter

    def put(self, key: str, request: Request) -> LocalWaiter:
        """The same with a ticket; it hasn't looked yet."""
        waiter = self.waiter(key, request)
        with self.engine.atomic():
            waiter.enqueue()
        return waiter

    def come(self, key: str, request: Request) -> Outlook:
        """The same, and it looks at once."""
        self.put(key, request)
        return self.look(key)

    def look(self, key: str) -> Outlook:
        with self.engine.atomic():
            return self._waiters[key].claim()

    def gets(self, key: str) -> list[str] | None:
        """Have it look: the names that it gets, None for none."""
        leases = self.look(key).leases
        return None if leases is None else [lease.name for lease in leases]

    def woken(self) -> list[str]:
        """Who was woken since this was asked last, and "witness" if that was."""
        found = []
        for key, waiter in self._waiters.items():
            if not waiter._pipe.is_made:
                continue
            fds = {fd for fd in waiter.listen(())[0] if is_readable(fd, 0)}
            waiter.heard(fds)
            if fds:
                found.append(key)
        if is_readable(self._witness.fd, 0):
            self._witness.renew()
            found.append("witness")
        return found

    def watched(self, key: str) -> list[Process]:
        """The processes whose end it hears of."""
        return self._waiters[key]._watched

    def tickets(self) -> list[Waiting]:
        """All of pool T, the best first."""
        with contextlib.closing(self.queues.in_order("T")) as tickets:
            return list(tickets)

    def passed(self) -> list[str]:
        """Those whom others may pass."""
        return [each.claim_key for each in self.tickets() if each.suspended]

    def close(self) -> None:
        self._witness.close()
        for waiter in self._waiters.values():
            waiter.close()


@pytest.fixture
def line(desk: Desk) -> Iterator[Line]:
    """Nobody yet."""
    line = Line(desk)
    yield line
    line.close()
