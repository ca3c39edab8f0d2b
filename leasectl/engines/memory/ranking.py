"""An order that changes all the time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

# Below so many entries it isn't worth the while to clear up.
_FEW = 64


class Ranking:
    """Names, each with a rank; the lowest comes first, and of equal ones the lowest name.

    A heap in which an entry that has become wrong stays until it comes to the top, or until most
    are wrong: so a change takes O(log n), whatever name it is about.
    """

    def __init__(self) -> None:
        self._ranks: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranks)

    def __contains__(self, name: str) -> bool:
        return name in self._ranks

    def put(self, name: str, rank: float) -> None:
        """Give a name a rank, whether or not it had one."""
        if self._ranks.get(name) == rank:
            return
        self._ranks[name] = rank
        heapq.heappush(self._heap, (rank, name))
        if len(self._heap) > 2 * len(self._ranks) + _FEW:
            self._heap = [(rank, name) for name, rank in self._ranks.items()]
            heapq.heapify(self._heap)

    def drop(self, name: str) -> None:
        """Take a name out, if it is in."""
        self._ranks.pop(name, None)

    def first(self) -> tuple[float, str] | None:
        """The lowest rank and its name; None when there is none."""
        while self._heap:
            rank, name = self._heap[0]
            if self._ranks.get(name) == rank:
                return rank, name
            heapq.heappop(self._heap)
        return None

    def take(self, count: int, *, only: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Take out the first so many names of some; all of those, if there are no more."""
        taken: list[str] = []
        left: list[tuple[float, str]] = []
        while len(taken) < count:
            first = self.first()
            if first is None:
                break
            if only(first[1]):
                taken.append(first[1])
            else:
                left.append(first)
            self.drop(first[1])
        for rank, name in left:
            self.put(name, rank)
        return taken
