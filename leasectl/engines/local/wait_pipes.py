"""The named pipes on which this process's waiters sleep."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from leasectl.state.directory import State
from leasectl.system.poll import is_readable

if TYPE_CHECKING:
    from leasectl.state.named_pipe import NamedPipe

_MOST_IDLE = 32


class WaitPipe:
    """One waiter's pipe, which is there from `open` on.

    Args:
        state: The state directory.
        put_aside: Offered the pipe when it is closed; returns whether it is kept for another.

    Attributes:
        name: In the folder of such pipes.
    """

    def __init__(self, state: State, put_aside: Callable[[WaitPipe], bool]) -> None:
        self.name = f"waiter-{os.urandom(8).hex()}"
        self._state = state
        self._path = state.waiter_pipe(self.name)
        self._put_aside = put_aside
        self._pipe: NamedPipe | None = None
        self._is_open = False

    @property
    def is_made(self) -> bool:
        """Whether it is there already, of an earlier wait: then it takes little to open it."""
        return self._pipe is not None

    @property
    def fd(self) -> int:
        """What becomes readable when somebody wakes the waiter."""
        assert self._pipe is not None, "open() comes first"
        return self._pipe.fd

    def open(self) -> None:
        """Begin to listen, unless it does: before anybody can see the ticket that names it."""
        if self._is_open:
            return
        if self._pipe is not None and not self._pipe.is_in_place():
            self.remove()
        if self._pipe is None:
            self._pipe = self._state.listen(self._path)
        elif is_readable(self._pipe.fd, 0):  # somebody has woken it too late
            self._pipe.renew()
        self._is_open = True

    def clear(self) -> None:
        """Get ready to be woken again."""
        assert self._pipe is not None, "open() comes first"
        self._pipe.renew()

    def close(self) -> None:
        """Stop listening."""
        self._is_open = False
        if self._pipe is not None and not self._put_aside(self):
            self.remove()

    def remove(self) -> None:
        """Remove the pipe."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class WaitPipes:
    """The pipes of one process.

    A named pipe takes longer to make than all the rest of an acquisition, so a process that waits
    more than once keeps some. Most never need a second, and end without tidying up. A server may
    have thousands at once.

    Args:
        state: The state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._idle: list[WaitPipe] = []
        self._waits_before = 0
        state.on_close.append(self._remove_idle)

    def get(self) -> WaitPipe:
        """One that nobody uses."""
        return self._idle.pop() if self._idle else WaitPipe(self._state, self._put_aside)

    def _put_aside(self, pipe: WaitPipe) -> bool:
        kept = self._waits_before > 0 and len(self._idle) < _MOST_IDLE
        self._waits_before += 1
        if kept:
            self._idle.append(pipe)
        return kept

    def _remove_idle(self) -> None:
        while self._idle:
            self._idle.pop().remove()
