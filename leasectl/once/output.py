"""What is looked after beside a command that does a work: its output, and how long it takes."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

from leasectl.run.child import Child
from leasectl.run.lease_watch import GRACE_AFTER_LOSS_SECONDS
from leasectl.system.clock import Clock

_READ_BYTES = 1 << 16


class Output:
    """What a command writes to its stdout, up to a size.

    Args:
        largest: In bytes; of one more the rest is read and thrown away.

    Attributes:
        write_fd: What the command writes to.
        is_too_large: There was more.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._parts: list[bytes] = []
        self._size = 0
        self.is_too_large = False

    def fds(self) -> list[int]:
        return [] if self._read_fd == -1 else [self._read_fd]

    def until(self, now: float) -> float | None:
        return None

    def look(self, woken: Collection[int]) -> None:
        if self._read_fd in woken:
            self._read()

    def began(self) -> None:
        """The command has what it writes to."""
        os.close(self.write_fd)

    def content(self) -> bytes:
        """All that the command has written, once it has ended.

        What it has left running in the background may write on; that isn't waited for.
        """
        while self._read_fd != -1 and not self.is_too_large and self._read():
            pass
        self.close()
        return b"".join(self._parts)

    def close(self) -> None:
        """Read no more."""
        if self._read_fd != -1:
            os.close(self._read_fd)
            self._read_fd = -1

    def _read(self) -> bool:
        """Read what there is; tells whether there may be more by now."""
        try:
            part = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not part:
            self.close()
            return False
        self._size += len(part)
        self.is_too_large = self.is_too_large or self._size > self._largest
        if self.is_too_large:
            self._parts.clear()
        else:
            self._parts.append(part)
        return True


class RunLimit:
    """Ends a command that takes too long, or whose output can't be kept.

    Args:
        child: The command.
        seconds: How long it may take, from now on; None for no limit.
        output: What it writes; None where that isn't its result.
        clock: Where times come from.

    Attributes:
        is_over: It has taken too long.
    """

    def __init__(
        self, child: Child, seconds: float | None, output: Output | None, *, clock: Clock
    ) -> None:
        self._child = child
        self._output = output
        self._clock = clock
        self._ends_at = None if seconds is None else clock.elapsed() + seconds
        self._kill_at: float | None = None
        self._has_ended_it = False
        self.is_over = False

    def fds(self) -> list[int]:
        return []

    def until(self, now: float) -> float | None:
        return self._kill_at if self._has_ended_it else self._ends_at

    def look(self, woken: Collection[int]) -> None:
        now = self._clock.elapsed()
        if self._has_ended_it:
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                self._child.signal(signal.SIGKILL)
            return
        self.is_over = self._ends_at is not None and now >= self._ends_at
        if self.is_over or (self._output is not None and self._output.is_too_large):
            self._has_ended_it = True
            self._kill_at = now + GRACE_AFTER_LOSS_SECONDS
            self._child.signal(signal.SIGTERM)
            self._child.signal(signal.SIGCONT)
