"""A client's wait: one acquisition, shared by all requests with the same key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from leasectl.model import Handle, Request
from leasectl.server.give_backs import key_in


class ClientWait:
    """One acquisition under way, and how many requests wait for its outcome.

    Args:
        request: What is wanted.

    Attributes:
        count: How many that is.
        key: The key that it came with.
        is_over: No request wants it any more.
        task: What acquires, once it has begun.
    """

    task: asyncio.Task[Handle]

    def __init__(self, request: Request) -> None:
        self.count = request.count
        self.key = key_in(request)
        self._listeners = 0  # requests that wait
        self._end_timer: asyncio.TimerHandle | None = None
        self.is_over = False
        self._give_up: Callable[[], object] = lambda: None

    def begin(
        self, work: Coroutine[Any, Any, Handle], give_up: Callable[[], object] | None
    ) -> None:
        """Have it be done.

        Args:
            work: What acquires.
            give_up: Has that come to its end soon; None: it may be cancelled for that.
        """
        self.task = asyncio.ensure_future(work)
        self._give_up = give_up or self.task.cancel

    def join(self) -> None:
        """Count a request that waits for the outcome."""
        self._listeners += 1
        self._stop_timer()

    def leave(self) -> bool:
        """Count a request out; tell whether it was the last."""
        self._listeners -= 1
        return not self._listeners

    def end_later(self, seconds: float, end: Callable[[ClientWait], object]) -> None:
        """Call ``end`` after some seconds if it is in the queue now and no request joins it."""
        if not self.task.done():
            self._end_timer = asyncio.get_running_loop().call_later(seconds, end, self)

    def _stop_timer(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def end(self) -> None:
        """Take it out of the queue; nothing happens to one that has come to its end."""
        if not self.task.done():
            self.is_over = True
            self._give_up()
