"""Clients that are processes, and share a clock that can jump ahead."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any, Callable

from leasectl.model import Lease, Request
from leasectl.system.clock import Clock, boottime_seconds
from tests.contract.world import Hold, Participant, Pending
from tests.kit.support import is_stopped
from tests.kit.waits import eventually, wait_readable

_FORK = get_context("fork")
_EPOCH_OF_2023 = 1_700_000_000.0


class LostFile:
    """Who lost what, as all processes of a world are told.

    Args:
        path: Where it may be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, claim_key: str, names: Sequence[str]) -> None:
        with open(self._path, "a") as file:
            file.writelines(f"{claim_key} {name}\n" for name in names)

    def read(self) -> list[tuple[str, str]]:
        with contextlib.suppress(FileNotFoundError):
            lines = self._path.read_text().splitlines()
            return [(claim_key, name) for claim_key, name in (line.split() for line in lines)]
        return []


class SharedClock:
    """A clock that goes on by itself and may be put forward, for all forked processes at once."""

    def __init__(self) -> None:
        self._ahead = RawValue("d", 0.0)
        self.clock = Clock(
            elapsed=lambda: boottime_seconds() + self._ahead.value,
            wall=lambda: _EPOCH_OF_2023 + boottime_seconds() + self._ahead.value,
        )

    def advance(self, seconds: float) -> None:
        self._ahead.value += seconds


class ForkedClient:
    """A client in a process of its own, which does one thing at a time.

    Args:
        owner: Under which it holds leases.
        participant: Called in the process, to make what does the work.
        is_waiting: Tells whether an owner has a ticket in the store, where the process can't.
    """

    def __init__(
        self,
        claim_key: str,
        participant: Callable[[ForkedClient], Participant],
        is_waiting: Callable[[str], bool] | None = None,
    ) -> None:
        self.claim_key = claim_key
        self._participant = participant
        self._waits = RawValue("b", 0)
        self._is_waiting = is_waiting or (lambda _: bool(self._waits.value))
        self._wakeups = RawValue("l", 0)
        self._timed_waits = RawValue("l", 0)
        self._commands, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=self._serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def acquire(self, request: Request, *, wait: float | None = 0) -> tuple[Lease, ...]:
        return tuple(self._ask("acquire", request, wait))

    def begin(self, request: Request, *, wait: float | None = None) -> Pending:
        self._waits.value = 0
        self._commands.send(("acquire", (request, wait)))
        eventually(lambda: self._commands.poll() or self._is_waiting(self.claim_key))
        return _Pending(self)

    def begin_rounds(self, request: Request, rounds: int) -> Callable[[], list[Hold]]:
        self._commands.send(("rounds", (request, rounds)))
        return lambda: list(self.answer())

    def free(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        return tuple(self._ask("free", names))

    def renew(self, ttl_seconds: float | None = None) -> tuple[str, ...]:
        return tuple(self._ask("renew", ttl_seconds))

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: self.is_stopped, what="it is stopped")

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_stopped(self) -> bool:
        """Whether nothing of it runs."""
        return is_stopped(self.pid)

    @property
    def is_running(self) -> bool:
        """Whether it is there and hasn't been stopped."""
        return self._process.is_alive() and not self.is_stopped

    def wakeups(self) -> int:
        return int(self._wakeups.value)

    def timed_waits(self) -> int:
        return int(self._timed_waits.value)

    def note_waiting(self) -> None:
        """Have it be known that the request is in the queue."""
        self._waits.value = 1

    def count_wakeup(self) -> None:
        self._wakeups.value += 1

    def count_timed_wait(self) -> None:
        self._timed_waits.value += 1

    def has_answered(self) -> bool:
        return self._commands.poll()

    def answer(self) -> Any:
        """Wait for what the process says; raise what it raised."""
        wait_readable(self._commands.fileno(), what=f"an answer of {self.claim_key}")
        answer = self._commands.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(self, what: str, *args: object) -> Any:
        self._commands.send((what, args))
        return self.answer()

    def _serve(self, commands: Connection) -> None:
        participant = self._participant(self)
        while True:
            what, args = commands.recv()
            try:
                commands.send(getattr(participant, what)(*args))
            except Exception as error:
                commands.send(error)


class _Pending:
    def __init__(self, client: ForkedClient) -> None:
        self._client = client
        self.done = client.has_answered

    def result(self) -> tuple[Lease, ...]:
        return tuple(self._client.answer())
