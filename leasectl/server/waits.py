"""A client's wait: one acquisition, shared by all requests with the same key.

Also the keys that clients have given up; their requests may still arrive.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from leasectl.errors import InvalidRequest, LeaseError, NotAllowed
from leasectl.model import Handle, Request
from leasectl.server.give_backs import token_in
from leasectl.system.clock import Clock

# Longer than any connection delays what was sent on it.
_REMEMBERED_SECONDS = 600.0


class AskAgain(LeaseError):
    """A round is over, and the request still waits."""


class Wanted(NamedTuple):
    """What a client wants, and by what it is found again.

    Args:
        handle_id: The id of its handle here.
        request: The request.
        key: What the client repeats, withdraws and releases it by; None for none.
        holder_identity: As the client says; empty for a client of the lease proxy's protocol.
        wait_seconds: How long it may wait; None for no limit.
        round_seconds: After how long its client repeats it; None for one that never does so.
    """

    handle_id: str
    request: Request
    key: str | None
    holder_identity: str = ""
    wait_seconds: float | None = None
    round_seconds: int | None = None

    def check_same(self, request: Request, holder_identity: str) -> None:
        """Compare an earlier request with the same key.

        Raises:
            InvalidRequest: It was another.
            NotAllowed: It came with another token.
        """
        if token_in(request) != token_in(self.request):
            raise NotAllowed("another token has used this Idempotency-Key")
        if request.count != self.request.count:
            raise InvalidRequest(f"the Idempotency-Key was used with count={request.count} before")
        if self.holder_identity not in ("", holder_identity):
            raise InvalidRequest("another holder has used this Idempotency-Key")


class ClientWait:
    """One acquisition under way, and how many requests wait for its outcome.

    Args:
        wanted: What is wanted.

    Attributes:
        wanted: As given.
        is_over: No request wants it any more.
        task: What acquires, once it has begun.
    """

    task: asyncio.Task[Handle]

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._listeners = 0  # requests that wait
        self._end_timer: asyncio.TimerHandle | None = None
        self.is_over = False
        self._give_up: Callable[[], object] = lambda: None

    def begin(
        self, work: Coroutine[Any, Any, Handle], give_up: Callable[[], object] | None
    ) -> None:
        """Start the acquisition.

        Args:
            work: What acquires.
            give_up: Ends it soon; None to cancel it instead.
        """
        self.task = asyncio.ensure_future(work)
        self._give_up = give_up or self.task.cancel

    def join(self) -> None:
        """Count a request that waits for the outcome."""
        self._listeners += 1
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def leave(self) -> bool:
        """Count a request out; tell whether it was the last."""
        self._listeners -= 1
        return not self._listeners

    def end_later(self, seconds: float, end: Callable[[ClientWait], object]) -> None:
        """Call ``end`` after some seconds if it is in the queue now and no request joins it."""
        if not self.task.done():
            self._end_timer = asyncio.get_running_loop().call_later(seconds, end, self)

    def end(self) -> None:
        """Take it out of the queue; nothing happens to one that has come to its end."""
        if not self.task.done():
            self.is_over = True
            self._give_up()


class WithdrawnKeys:
    """The keys that were withdrawn in the last minutes.

    Args:
        clock: Where times come from.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()  # in the order of time

    def add(self, key: str) -> None:
        """Remember a key."""
        now = self._clock.elapsed()
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        self._until.pop(key, None)
        self._until[key] = now + _REMEMBERED_SECONDS

    def covers(self, key: str) -> bool:
        """Tell whether a request's key, or one that it begins with, was withdrawn."""
        now = self._clock.elapsed()
        parts = key.split("/")
        beginnings = ("/".join(parts[:length]) for length in range(1, len(parts) + 1))
        return any(self._until.get(each, 0.0) > now for each in beginnings)
