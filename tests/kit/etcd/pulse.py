"""How busy a machine is: for how long etcd didn't answer, or nobody came to ask it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.kit.etcd.access import Access
from tests.kit.waits import join

_EVERY_SECONDS = 0.05


class Pulse:
    """Something small that is done again and again, beside what a test looks at.

    Attributes:
        longest_pause: For how many seconds it wasn't done, at the longest: what comes by the clock
            may come so much later.
    """

    def __init__(self, access: Access) -> None:
        self.longest_pause = 0.0
        self._access = access
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(_EVERY_SECONDS):
            self._access.gateway.read()
            now = time.monotonic()
            self.longest_pause = max(self.longest_pause, now - before - _EVERY_SECONDS)
            before = now

    def close(self) -> None:
        """End it, once it has seen what goes on now."""
        self._is_over.set()
        join(self._thread)


@contextlib.contextmanager
def pulse(access: Access) -> Iterator[Pulse]:
    """A pulse while something is done; it has been closed by the end of that."""
    beating = Pulse(access)
    try:
        yield beating
    finally:
        beating.close()
