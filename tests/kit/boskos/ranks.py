"""Boskos' queues: who has asked for what in which order, kept in its memory by request id."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple


class Queue(NamedTuple):
    """Which of its queues: there is one for each type in each state."""

    type: str
    state: str


class Ranks:
    """The places of those who ask.

    A place counts for so long after its id was last asked with. When that is over it isn't counted,
    but only a clearing forgets it: who asks again before that is where he was.

    Args:
        ttl_seconds: How long a place counts: `--request-ttl`.
        clearing_seconds: How often those that don't count any more are forgotten.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        ttl_seconds: float = 30.0,
        clearing_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._clearing_seconds = clearing_seconds
        self._clock = clock
        self._next_clearing = clock() + clearing_seconds
        # Until when each place counts, in the order in which they were taken.
        self._queues: dict[Queue, dict[str, float]] = {}

    def rank(self, queue: Queue, request_id: str) -> int:
        """The rank of who asks now, from 1; without an id it is the last, and has no place."""
        now = self._clock()
        self._clear(now)
        places = self._queues.setdefault(queue, {})
        if request_id:
            places[request_id] = now + self._ttl_seconds
        rank = 1
        for each, until in places.items():
            if each == request_id:
                break
            rank += until >= now
        return rank

    def knows(self, queue: Queue, request_id: str) -> bool:
        """Whether somebody has asked with this id already."""
        return request_id in self._queues.get(queue, {})

    def leave(self, queue: Queue, request_id: str) -> None:
        """The place goes with the grant."""
        self._queues.get(queue, {}).pop(request_id, None)

    def show(self) -> list[dict[str, object]]:
        """The places that count, in their order."""
        now = self._clock()
        return [
            {"type": queue.type, "state": queue.state, "request_id": each, "left": until - now}
            for queue, places in self._queues.items()
            for each, until in places.items()
            if until >= now
        ]

    def restore(self, queue: Queue, request_id: str, asked_at: float) -> None:
        """Have a place as it was before a restart, as no Boskos has it."""
        self._queues.setdefault(queue, {})[request_id] = asked_at + self._ttl_seconds

    def _clear(self, now: float) -> None:
        if now >= self._next_clearing:
            self._next_clearing = now + self._clearing_seconds
            for queue, places in self._queues.items():
                self._queues[queue] = {each: until for each, until in places.items() if until > now}
