"""A client's wait: one acquisition, whose outcome is for all who ask for it with the same key."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from leasectl.model import Handle, Request
from leasectl.server.grants import key_in
from leasectl.typed.hints import Any, Callable


class ClientWait:
    """One acquisition under way, and how many requests wait for its outcome.

    Args:
        request: What is wanted.

    Attributes:
        count: How many that is.
        key: The key that it came with.
        listeners: How many requests wait.
        is_over: Nobody wants it any more.
        task: What acquires, once it has begun.
    """

    task: asyncio.Task[Handle]

    def __init__(self, request: Request) -> None:
        self.count = request.count
        self.key = key_in(request)
        self.listeners = 0
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

    def end(self) -> None:
        """Take it out of the queue; nothing happens to one that has come to its end."""
        if not self.task.done():
            self.is_over = True
            self._give_up()
