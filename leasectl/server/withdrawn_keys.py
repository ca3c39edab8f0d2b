"""Request keys that clients have given up; their requests may still arrive."""

from __future__ import annotations

from collections import OrderedDict

from leasectl.system.clock import Clock

# Longer than any connection delays what was sent on it.
_REMEMBERED_SECONDS = 600.0


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
