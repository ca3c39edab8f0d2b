"""A thread that follows watches and wakes those that wait for them.

It ends soon after it is closed. What comes of a watch that ends, and where the next one begins, is
up to who has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from leasectl.engines.cluster.objects import Watch
from leasectl.errors import LeaseError
from leasectl.http.no_answer import WatchEnded
from leasectl.system.threads import start_thread
from leasectl.system.wakeup import Wakeup

Event = TypeVar("Event")

_LEAST_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 5.0


class Following:
    """The thread, from `start` on.

    Args:
        follow: Called in it again and again: follows a watch by `take_all` until that ends.
        again: Called in it when it is time for another, after one that ended or wasn't to be had.
    """

    def __init__(
        self, follow: Callable[[], object], again: Callable[[], object] = lambda: None
    ) -> None:
        self._follow = follow
        self._again = again
        self._wakeup = Wakeup()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch[object] | None = None  # under the lock

    def start(self, name: str) -> None:
        """Start it, under a name of its own."""
        start_thread(name, self._run, failed=self._fail, repeats=True)

    @property
    def fd(self) -> int:
        """Readable after `wake`."""
        return self._wakeup.fd

    @property
    def is_closed(self) -> bool:
        """Whether it is to end."""
        return self._closed.is_set()

    def wake(self) -> None:
        """Wake those that wait."""
        self._wakeup.set()

    def clear(self) -> None:
        """Get ready for the next."""
        self._wakeup.clear()

    def close(self) -> None:
        """End it, and its watch."""
        self._closed.set()
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.cut()
        self._wakeup.close()

    # In the thread

    def take_all(self, watch: Watch[Event], take: Callable[[Event], object]) -> None:
        """Hand over what a watch tells, until it ends.

        Raises:
            WatchEnded, LeaseError: As `Watch` has it.
        """
        with self._lock:
            self._watch = watch
        if self.is_closed:
            return
        with watch as events:
            for event in events:
                take(event)

    def _fail(self) -> None:
        if not self.is_closed:
            self._again()

    def _run(self) -> None:
        while not self.is_closed:
            try:
                self._follow()
                continue
            except WatchEnded as ended:
                self._closed.wait(ended.retry_after_seconds or _LEAST_SECONDS)
            except LeaseError:
                self._closed.wait(_ASK_AGAIN_SECONDS)
            if not self.is_closed:
                self._again()
