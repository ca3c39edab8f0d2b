"""Boskos' queue: who asked first, and the places of those who have gone."""

from __future__ import annotations

import time


class Places:
    """The places of one Boskos, by type; whoever has the r-th may have the r-th free resource.

    Args:
        ghost_seconds: For how long the place of a client that went away stays: `--request-ttl`, the
            real one's 30. None: there is no queue; who is the first to ask for what is free has it.
    """

    def __init__(self, ghost_seconds: float | None) -> None:
        self._ghost_seconds = ghost_seconds
        self._queues: dict[str, dict[int, float | None]] = {}

    @property
    def are_kept(self) -> bool:
        return self._ghost_seconds is not None

    def may_have(self, pool_type: str, request: int, *, free: int) -> bool:
        """Tell, of who asks now, whether one of so many is for it; it has a place from now on."""
        if self._ghost_seconds is None:
            return free > 0
        now = time.monotonic()
        queue = self._queues.setdefault(pool_type, {})
        for each in [each for each, until in queue.items() if until is not None and until <= now]:
            del queue[each]
        queue.setdefault(request, None)
        return list(queue).index(request) < free

    def leave(self, pool_type: str, request: int) -> None:
        """It got what it asked for."""
        self._queues.get(pool_type, {}).pop(request, None)

    def abandon(self, pool_type: str, request: int) -> None:
        """It asks no more; its place stays for a while."""
        if self._ghost_seconds is not None and request in self._queues.get(pool_type, {}):
            self._queues[pool_type][request] = time.monotonic() + self._ghost_seconds
