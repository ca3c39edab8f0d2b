"""The embedded pool as a `World`: clients are processes, and share a clock that can jump ahead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any, Callable

from leasectl.clock import Clock, boottime_seconds
from leasectl.engines.local import LocalEngine
from leasectl.engines.local_pools import LocalPools
from leasectl.liveness import this_process
from leasectl.model import Lease, Request
from leasectl.state import State
from tests.contract.world import Client, Hold, Participant, Pending
from tests.support import eventually

_FORK = get_context("fork")
_EPOCH_OF_2023 = 1_700_000_000.0


class LocalWorld:
    """One state directory, and the processes on it."""

    ttl_seconds = 10.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ahead = RawValue("d", 0.0)
        self.clock = Clock(
            elapsed=lambda: boottime_seconds() + self._ahead.value,
            wall=lambda: _EPOCH_OF_2023 + boottime_seconds() + self._ahead.value,
        )
        self.state = State.open(str(directory))
        self.engine = LocalEngine(self.state, lost=self.note_lost, clock=self.clock)
        self.pools = LocalPools(self.state, lost=self.note_lost, clock=self.clock)
        self._clients: list[_Process] = []

    def client(self) -> Client:
        client = _Process(self, f"handle-{len(self._clients)}")
        self._clients.append(client)
        return client

    def withdraw(self, client: Client) -> None:
        with self.engine.atomic():
            self.engine.withdraw(client.owner)

    def let_pass(self, seconds: float) -> None:
        self._ahead.value += seconds
        # Their timers run on the kernel's clock, which doesn't jump; so let them look at theirs.
        for pipe in (self.directory / "waiters").iterdir():
            with contextlib.suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    def lost(self) -> list[tuple[str, str]]:
        with contextlib.suppress(FileNotFoundError):
            lines = self._lost_file.read_text().splitlines()
            return [(owner, name) for owner, name in (line.split() for line in lines)]
        return []

    def close(self) -> None:
        for client in self._clients:
            client.kill()
        self.state.close()

    def note_lost(self, owner: str, names: Sequence[str]) -> None:
        with open(self._lost_file, "a") as file:
            file.writelines(f"{owner} {name}\n" for name in names)

    @property
    def _lost_file(self) -> Path:
        return self.directory / "lost"


class _Process:
    """A client in a process of its own, which does one thing at a time."""

    def __init__(self, world: LocalWorld, owner: str) -> None:
        self.owner = owner
        self._world = world
        self._wakeups = RawValue("l", 0)
        self._timed_waits = RawValue("l", 0)
        self._commands, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=self._serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def acquire(self, request: Request, *, wait: float | None = 0) -> tuple[Lease, ...]:
        return tuple(self._ask("acquire", request, wait))

    def begin(self, request: Request, *, wait: float | None = None) -> Pending:
        self._commands.send(("acquire", (request, wait)))
        eventually(lambda: self._commands.poll() or self._is_waiting())
        return _Pending(self)

    def begin_rounds(self, request: Request, rounds: int) -> Callable[[], list[Hold]]:
        self._commands.send(("rounds", (request, rounds)))
        return lambda: list(self.answer(20))

    def free(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return tuple(self._ask("free", names))

    def renew(self) -> tuple[str, ...]:
        return tuple(self._ask("renew"))

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def wakeups(self) -> int:
        return int(self._wakeups.value)

    def timed_waits(self) -> int:
        return int(self._timed_waits.value)

    def has_answered(self) -> bool:
        return self._commands.poll()

    def answer(self, timeout: float = 10) -> Any:
        """Wait for what the process says; raise what it raised."""
        assert self._commands.poll(timeout), f"{self.owner} gave no answer within {timeout:g}s"
        answer = self._commands.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(self, what: str, *args: object) -> Any:
        self._commands.send((what, args))
        return self.answer()

    def _is_waiting(self) -> bool:
        return bool(
            self._world.state.query("SELECT 1 FROM ticket WHERE owner = ? LIMIT 1", self.owner)
        )

    def _serve(self, commands: Connection) -> None:
        world = self._world
        state = State.open(str(world.directory))
        participant = Participant(
            LocalEngine(state, lost=world.note_lost, clock=world.clock),
            LocalPools(state, lost=world.note_lost, clock=world.clock),
            world.clock,
            owner=self.owner,
            process=this_process(),
            count_wakeup=self._count_wakeup,
            count_timed_wait=self._count_timed_wait,
        )
        while True:
            what, args = commands.recv()
            try:
                commands.send(getattr(participant, what)(*args))
            except Exception as error:
                commands.send(error)

    def _count_wakeup(self) -> None:
        self._wakeups.value += 1

    def _count_timed_wait(self) -> None:
        self._timed_waits.value += 1


class _Pending:
    def __init__(self, process: _Process) -> None:
        self._process = process
        self.done = process.has_answered

    def result(self) -> tuple[Lease, ...]:
        return tuple(self._process.answer())
