"""The embedded pool as a `World`: its clients are processes."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Callable

from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.witness import LocalWitness
from leasectl.engines.notes import Notes
from leasectl.engines.pool_admin import Members, PoolAdmin
from leasectl.engines.values import Values
from leasectl.model import Handle, Request
from leasectl.state.directory import State
from leasectl.state.event_log import StateEventLog
from leasectl.state.handles import Handles
from leasectl.system.process import this_process
from tests.contract.forked import ForkedClient, LostFile, SharedClock
from tests.contract.world import Client, Participant
from tests.kit.support import stop


class _Client(ForkedClient):
    def __init__(
        self,
        claim_key: str,
        participant: Callable[[ForkedClient], Participant],
        directory: Path,
    ) -> None:
        super().__init__(claim_key, participant)
        self._directory = directory

    def stop(self) -> None:
        stop(self.pid, self._directory)


class LocalWorld:
    """One state directory, and the processes on it."""

    ttl_seconds = 10.0
    keeps_stopped = True
    ages_itself = False
    counts_grants = True
    has_fences = True
    numbers_what_happened = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.losses = LostFile(directory / "lost")
        self._time = SharedClock()
        self.clock = self._time.clock
        self.state = State.open(str(directory))
        self.engine = LocalEngine(self.state, lost=self.losses.note, clock=self.clock)
        self.events = StateEventLog(self.state)
        self._opened = threading.local()
        self._opened.state = self.state
        self._clients: list[ForkedClient] = []
        self._witness = LocalWitness(self.state, lost=self.losses.note, clock=self.clock)

    @property
    def pools(self) -> PoolAdmin:
        return self._sides().pools

    @property
    def notes(self) -> Notes:
        return self._sides().notes

    @property
    def members(self) -> Members:
        return self._sides().members

    @property
    def values(self) -> Values:
        return self._sides().values

    def _sides(self) -> LocalSides:
        """The pools as this thread has them open."""
        if not hasattr(self._opened, "state"):
            self._opened.state = State.open(str(self.directory))
        state: State = self._opened.state
        return LocalSides(state, lost=self.losses.note, clock=self.clock)

    def client(self) -> Client:
        claim_key = f"handle-{len(self._clients)}"
        client = _Client(claim_key, self._participant, self.directory)
        self._clients.append(client)
        return client

    def withdraw(self, client: Client) -> None:
        with self.engine.atomic():
            self.engine.withdraw(client.claim_key)

    def let_pass(self, seconds: float) -> None:
        end = self.clock.elapsed() + seconds
        while True:
            self._witness.look()
            now, due = self.clock.elapsed(), self._witness.due()
            if due is None or due >= end:
                break
            self._time.advance(max(0.0, due - now))
        self._time.advance(max(0.0, end - self.clock.elapsed()))
        # Their timers run on the kernel's clock, which doesn't jump; so let them look at theirs.
        for pipe in (self.directory / "waiters").iterdir():
            with contextlib.suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    def lost(self) -> list[tuple[str, str]]:
        return self.losses.read()

    def close(self) -> None:
        for client in self._clients:
            client.kill()
        self.state.close()

    def _participant(self, client: ForkedClient) -> Participant:
        state = State.open(str(self.directory))

        def record(request: Request) -> None:
            with state.transaction() as db:
                db.execute("DELETE FROM handle WHERE id = ?", (client.claim_key,))
                handle = Handle(
                    id=client.claim_key,
                    backend="local:",
                    request=request,
                    owner="job/1",
                    holder_identity=f"job/1/host/{client.claim_key}",
                    state="acquiring",
                    acquisition=1,
                )
                Handles(state).create(handle, remote=False, now=self.clock.elapsed())

        return Participant(
            LocalEngine(state, lost=self.losses.note, clock=self.clock),
            LocalSides(state, lost=self.losses.note, clock=self.clock),
            self.clock,
            claim_key=client.claim_key,
            process=this_process(),
            note_waiting=client.note_waiting,
            count_wakeup=client.count_wakeup,
            count_timed_wait=client.count_timed_wait,
            record=record,
        )
