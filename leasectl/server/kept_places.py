"""Keep the order of waiting clients over a restart of the server.

A client repeats its request after a restart, each after a pause of its own. So the server notes
each request with a key that has waited for a moment, in the order of their arrival. The next server
on the same state directory reads that. For its first seconds, a request waits until all before it
have come back; so does a new one. Then the order in the queue of the pool is the earlier one. Those
that come back too late queue again; the others keep their order all the same.

The notes are lines in a file of the server's, ``+TYPE ID`` and ``-ID``. A server that is killed
leaves its file. Notes aren't synced: after a crash of the machine, clients get new places.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from leasectl.model import parse_process
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead, this_process

# A request that is granted sooner isn't worth a note.
NOTED_AFTER_SECONDS = 1.0
# Clients pause for at most 5 s between two tries.
RETURN_SECONDS = 10.0
_PREFIX = "serve.places."
_LEFT = ".left"  # of a server that has ended its waits
# Lines in a file, beyond those of requests that wait, before it is written anew.
_MOST_OLD_LINES = 10_000


class KeptPlaces:
    """The places of one server's clients.

    Args:
        state: The opened state directory.
        clock: Where times come from.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._clock = clock
        self._path = Path(state.path(f"{_PREFIX}{os.getpid()}"))
        self._noted: dict[str, str] = {}  # the types, by id, in order
        self._lines = 0
        self._is_closed = False
        self._expected = _take_left(self._path.parent)
        self._until = clock.elapsed() + RETURN_SECONDS
        self._here: set[str] = set()  # the ids of those that wait for their turn
        # Set once, when the next one has come back, or isn't waited for any more. An event that is
        # cleared could be cleared before the task that `wait_for` makes has looked at it.
        self._came: asyncio.Event | None = None

    async def wait_for_turn(self, handle_id: str, pool_type: str) -> None:
        """Wait for those before it to come back; after some seconds, only for those that did."""
        self._here.add(handle_id)
        try:
            while self._is_behind(handle_id, pool_type):
                left: float | None = self._until - self._clock.elapsed()
                if left is not None and left <= 0:
                    left = None
                    if not self._here.issuperset(self._expected):
                        expected = self._expected.items()
                        self._expected = {id_: its for id_, its in expected if id_ in self._here}
                        self._wake()
                        continue
                self._came = self._came or asyncio.Event()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._came.wait(), left)
        finally:
            self._here.discard(handle_id)
            if self._expected.pop(handle_id, None) is not None:
                self._wake()

    def _wake(self) -> None:
        if self._came is not None:
            self._came.set()
            self._came = None

    def _is_behind(self, handle_id: str, pool_type: str) -> bool:
        for other, its_type in self._expected.items():
            if other == handle_id:
                return False
            if its_type == pool_type:
                return True
        return False

    def note(self, handle_id: str, pool_type: str) -> None:
        """Note that a request waits; too late for the next server once this one is closed."""
        if self._is_closed:
            return
        self._noted[handle_id] = pool_type
        self._write(f"+{pool_type} {handle_id}\n")

    def forget(self, handle_id: str) -> None:
        """Note that a request doesn't wait any more."""
        if self._noted.pop(handle_id, None) is not None:
            self._write(f"-{handle_id}\n")

    def close(self) -> None:
        """Leave the file to the next server, if clients wait.

        The next server may start while this process still answers its last requests.
        """
        with contextlib.suppress(OSError):
            if self._noted:
                self._path.replace(f"{self._path}{_LEFT}")
            else:
                self._path.unlink()
        self._noted, self._is_closed = {}, True

    def _write(self, line: str) -> None:
        """Add a line; a disk that takes none costs clients their places, and no more."""
        with contextlib.suppress(OSError):
            if not self._lines or self._lines > len(self._noted) + _MOST_OLD_LINES:
                waiting = (f"+{each} {handle_id}\n" for handle_id, each in self._noted.items())
                line = f"{this_process().encode()}\n{''.join(waiting)}"
                self._lines = len(self._noted)
                new = self._path.with_suffix(".new")
                with open(new, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(line)
                new.replace(self._path)
            else:
                with open(self._path, "a") as file:
                    file.write(line)
            self._lines += 1


def _take_left(directory: Path) -> dict[str, str]:
    """Return what servers that have ended left, by id, and delete their files."""
    left: dict[str, str] = {}
    for path in sorted(directory.glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError, ValueError):
            first, *lines = path.read_text().splitlines()
            if path.suffix != _LEFT and not is_dead(parse_process(first)):
                continue
            for line in lines:
                if line.startswith("-"):
                    left.pop(line[1:], None)
                else:
                    pool_type, _, handle_id = line[1:].partition(" ")
                    left[handle_id] = pool_type
        with contextlib.suppress(OSError):
            path.unlink()
    return left
