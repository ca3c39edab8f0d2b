"""Waiting on the embedded pool: a named pipe of one's own, and the predecessor's process."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from typing import Callable

from leasectl.model import Process, Ticket
from leasectl.state.database import errors_of
from leasectl.state.directory import State
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.process import this_process
from leasectl.system.process_watch import ProcessWatch

_MOST_IDLE = 32


class PipeWaiter:
    """A waiter on the embedded pool.

    Args:
        state: The state directory.
        put_aside: Offered the waiter when it is closed; returns whether it is kept for another.

    Attributes:
        name: Of its named pipe.
    """

    def __init__(self, state: State, put_aside: Callable[[PipeWaiter], bool]) -> None:
        self.name = f"waiter-{os.urandom(8).hex()}"
        self._path = state.waiter_pipe(self.name)
        self._pipe: NamedPipe | None = None
        self._watch = ProcessWatch()
        self._put_aside = put_aside
        self._is_open = False

    @property
    def has_place(self) -> bool:
        return True

    def open(self) -> None:
        if self._is_open:
            return
        with errors_of(self._path):
            if self._pipe is None:
                self._pipe = NamedPipe(self._path)
            else:
                self._pipe.renew()  # of what may have woken it too late
        self._is_open = True

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        before_me = predecessor.claimant.process if predecessor else None
        others = [*processes, before_me] if before_me else processes
        # Not ourselves: in a process with thousands of waiters that would be a pidfd for each.
        self._watch.update([each for each in others if each != this_process()])
        assert self._pipe is not None, "open() comes first"
        return frozenset((self._pipe.fd, *self._watch.fds())), self._watch.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._pipe is not None and self._pipe.fd in woken:
            self._pipe.renew()
        ended = not woken.isdisjoint(self._watch.fds())
        self._watch.heard(woken)
        return ended

    def close(self) -> None:
        self._watch.close()
        self._is_open = False
        if self._pipe is not None and not self._put_aside(self):
            self.remove()

    def remove(self) -> None:
        """Remove the pipe."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class Waiters:
    """The waiters of one process.

    A named pipe takes longer to make than all the rest of an acquisition, so a process that waits
    more than once keeps some. Most never need a second, and end without tidying up. A server may
    have thousands at once.

    Args:
        state: The state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._idle: list[PipeWaiter] = []
        self._waits_before = 0
        state.on_close.append(self._remove_idle)

    def get(self) -> PipeWaiter:
        """One that nobody uses."""
        return self._idle.pop() if self._idle else PipeWaiter(self._state, self._put_aside)

    def _put_aside(self, waiter: PipeWaiter) -> bool:
        kept = self._waits_before > 0 and len(self._idle) < _MOST_IDLE
        self._waits_before += 1
        if kept:
            self._idle.append(waiter)
        return kept

    def _remove_idle(self) -> None:
        while self._idle:
            self._idle.pop().remove()
