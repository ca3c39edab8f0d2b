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
    """The pipe of one waiter; it exists from `open` on.

    Args:
        state: The state directory.
        put_aside: Called with the pipe when it is closed; returns whether it is kept for another.

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
        """Whether it exists already, from an earlier wait: then it is opened quickly."""
        return self._pipe is not None

    @property
    def fd(self) -> int:
        """A descriptor that is readable when the waiter was woken."""
        assert self._pipe is not None, "open() comes first"
        return self._pipe.fd

    def open(self) -> None:
        """Begin to listen, before another process can see the ticket that names the pipe."""
        if self._is_open:
            return
        if self._pipe is not None and not self._pipe.is_in_place():
            self.remove()
        if self._pipe is None:
            self._pipe = self._state.listen(self._path)
        elif is_readable(self._pipe.fd, 0):  # a wake-up came too late for the last wait
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

    To create a named pipe takes longer than the rest of an acquisition, so a process that waits
    more than once keeps some. Most never need a second, and end without cleaning up. A server may
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
        """Return an unused pipe."""
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
