"""A thread that is kept for the next piece of work, and can be let go in the middle of one."""

from __future__ import annotations

import threading

from leasectl.system import c_signal as signal
from leasectl.typed.hints import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from queue import SimpleQueue
else:  # of which `queue` is made; it loads more besides
    from _queue import SimpleQueue


class Worker(threading.Thread):
    """Does one thing after the other; a new thread for each costs half as much as a request."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._assigned: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """The thread itself."""
        # Or those that the main thread blocks later, to read them, would be taken here.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            work = self._assigned.get()
            if work is None:
                return
            work()
            del work  # or what it has in hand would stay until there is more to do

    def assign(self, work: Callable[[], object]) -> None:
        """Have something done, once what was assigned before is."""
        self._assigned.put(work)

    def dismiss(self) -> None:
        """Have it end once it is done."""
        self._assigned.put(None)
