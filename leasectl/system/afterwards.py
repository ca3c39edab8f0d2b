"""Work for which no caller waits.

Such work can be left undone at any instant, and takes a bounded time. Of the works that a command
leaves, only the last is done: it covers those before it. A work that was begun is done by a thread,
one after the other. A command that has answered ends when it is done, or when it takes too long.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from leasectl.errors import Interrupted
from leasectl.system.threads import NoThread, start_thread

# Enough for a request to a server that has just answered another.
LONGEST_SECONDS = 3.0
_IDLE_SECONDS = 1.0

_left: Callable[[], object] | None = None
_goes_on = False
_begun: tuple[threading.Thread, SimpleQueue[Callable[[], object]]] | None = None
_lock = threading.Lock()


def leave(work: Callable[[], object]) -> None:
    """Leave a work for the end of this process, which another process may do instead.

    Args:
        work: Called without arguments; its errors are ignored.
    """
    global _left
    if not _goes_on:
        _left = work
        return
    with contextlib.suppress(NoThread):
        start_thread("afterwards", lambda: _do(work))


def begin(work: Callable[[], object]) -> None:
    """Begin a work beside the answer.

    Args:
        work: Called without arguments; its errors are ignored. It isn't done if no thread can be
            started.
    """
    global _begun
    with _lock, contextlib.suppress(NoThread):
        if _begun is None or not _begun[0].is_alive():  # a forked child has no threads
            works: SimpleQueue[Callable[[], object]] = SimpleQueue()
            _begun = start_thread("afterwards", lambda: _do_all(works)), works
        _begun[1].put(work)


def go_on() -> None:
    """Let threads do the work from now on: this process doesn't end after one answer."""
    global _goes_on
    _goes_on = True


def finish() -> None:
    """Do the work that was left, after all output of this process."""
    global _left
    work, _left = _left, None
    if work is not None:
        _do(work)
    with _lock:
        if _begun is None or not _begun[0].is_alive():
            return
        is_done = threading.Event()
        _begun[1].put(is_done.set)
    is_done.wait(LONGEST_SECONDS)


def _do_all(works: SimpleQueue[Callable[[], object]]) -> None:
    """Do works as they come, until none has come for a while."""
    global _begun
    while True:
        try:
            _do(works.get(timeout=_IDLE_SECONDS))
        except Empty:
            with _lock:
                if works.empty():
                    _begun = None
                    return


def _do(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception, Interrupted):
        work()
