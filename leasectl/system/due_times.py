"""Find what is due next without looking at all."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

# A heap of fewer entries isn't cleaned up.
_FEW = 64


class DueTimes(Generic[Key]):
    """Times, one for each of some keys at most."""

    def __init__(self) -> None:
        self._times: dict[Key, float] = {}
        # Also has replaced times; each is compared with `_times` when it comes to the top.
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0  # so that keys are never compared

    def put(self, key: Key, at: float | None) -> None:
        """Set when a key is due; None removes it."""
        if at is None:
            self._times.pop(key, None)
        elif self._times.get(key) != at:
            self._times[key] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, key))
            if len(self._heap) > _FEW + 2 * len(self._times):
                self._build_anew()

    def first(self) -> float | None:
        """When the first is due; None when none is."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def next(self, now: float) -> Key | None:
        """The first that is due by now, until it is due at another time; None when none is."""
        first = self.first()
        return None if first is None or first > now else self._heap[0][2]

    def _build_anew(self) -> None:
        self._heap = [(at, number, key) for number, (key, at) in enumerate(self._times.items())]
        heapq.heapify(self._heap)
        self._count = len(self._heap)
