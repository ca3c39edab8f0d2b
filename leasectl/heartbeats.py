"""Heartbeats to servers, sent by threads: a server that hangs holds up nobody but itself."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import Callable, NamedTuple

from leasectl.backends.opening import open_renewals
from leasectl.clock import Clock
from leasectl.errors import LeaseError
from leasectl.model import Handle
from leasectl.state import State
from leasectl.targets import Target, whole


class Heartbeat(NamedTuple):
    """What came of one.

    Args:
        target: What it was for.
        sent_at: When it was sent, CLOCK_BOOTTIME in seconds; deadlines count from that.
        held: The names that are still held; None when that couldn't be found out.
        error: Why it couldn't.
    """

    target: Target
    sent_at: float
    held: tuple[str, ...] | None
    error: LeaseError | None = None


class Heartbeats:
    """Sends heartbeats for handles whose leases live on servers.

    There is a thread for each server and ttl, so none waits for another's. What came of them is
    for the thread that sends: only that one may touch the records.

    Args:
        state: The opened state directory.
        clock: Where times come from.

    Attributes:
        fd: A descriptor that can be read when there are outcomes.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._place = state.place()
        self._clock = clock
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._outcomes: queue.SimpleQueue[Heartbeat] = queue.SimpleQueue()
        self._asked: dict[tuple[str, str, float], queue.SimpleQueue[Handle | None]] = {}
        self._under_way: set[Target] = set()
        self._lock = threading.Lock()
        self._closed = False

    def send(self, handle: Handle) -> None:
        """Send one for a handle, unless one is under way."""
        if whole(handle) in self._under_way:
            return
        self._under_way.add(whole(handle))
        assert handle.request.ttl_seconds is not None
        key = (handle.backend, handle.settings, handle.request.ttl_seconds)
        if key not in self._asked:
            self._asked[key] = queue.SimpleQueue()
            threading.Thread(
                target=self._work, args=(*key, self._asked[key]), name="heartbeats", daemon=True
            ).start()
        self._asked[key].put(handle)

    def outcomes(self) -> list[Heartbeat]:
        """Take what has come so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._outcomes.get_nowait())
        self._under_way.difference_update(each.target for each in found)
        return found

    def close(self) -> None:
        """Let the threads end, each after what it is at."""
        with self._lock:
            self._closed = True
            os.close(self.fd)
            os.close(self._write_fd)
        for asked in self._asked.values():
            asked.put(None)

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # it is full of wake-ups
            if not self._closed:  # or the number may be another file's by now
                os.write(self._write_fd, b"!")

    def _work(
        self, url: str, settings: str, ttl_seconds: float, asked: queue.SimpleQueue[Handle | None]
    ) -> None:
        renew: Callable[[str], tuple[str, ...]] | None = None
        while True:
            handle = asked.get()
            if handle is None:
                return
            sent_at = self._clock.elapsed()
            held, failure = None, None
            try:
                if renew is None:
                    renew = open_renewals(
                        url,
                        place=self._place,
                        settings=settings,
                        ttl_seconds=ttl_seconds,
                        clock=self._clock,
                    )
                held = renew(handle.claims_as)
            except LeaseError as error:
                failure = error
            except Exception as error:  # whoever waits for the outcome would wait for ever
                failure = LeaseError(f"a heartbeat failed: {error!r}")
            self._outcomes.put(Heartbeat(whole(handle), sent_at, held, failure))
            self._wake()
