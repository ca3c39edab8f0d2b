"""How things went in the pools in the last hours, for the pictures: kept up with, not read anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.engines.event_log import EventLog
from leasectl.pools.series import Series, series_of
from leasectl.pools.shown import ShownPool
from leasectl.pools.statistics import Window
from leasectl.pools.timeline import Present, Timeline
from leasectl.state.event import EventFilter

# The picture has the shortest of these that shows all there is, else the longest.
_SPANS_SECONDS = (3600.0, 6 * 3600.0)
_STEPS = 120
# It is drawn anew no more often, as who looks sees no difference.
_SAME_SECONDS = 10.0
# What has gone by is forgotten by reading again what is still shown, so often.
_READ_AGAIN_SECONDS = 3600.0


class History:
    """The pools' last hours.

    Args:
        log: What happened in them.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        self._read_at = now
        self._last = 0
        self._timelines: dict[str, Timeline] = {}
        self._drawn_at = float("-inf")
        self._drawn: dict[str, Series] = {}

    def series(self, pools: Sequence[ShownPool], now: float) -> Mapping[str, Series]:
        """How things went, by type; only of pools that somebody wanted something of.

        Args:
            pools: As they are.
            now: Wall clock, seconds since the epoch.

        Raises:
            LeaseError: The events can't be read.
        """
        if not 0 <= now - self._read_at < _READ_AGAIN_SECONDS:
            self._begin(now)
        if 0 <= now - self._drawn_at < _SAME_SECONDS:
            return self._drawn
        self._read(now)
        span = self._span(now)
        self._drawn_at, self._drawn = now, {}
        for pool in pools:
            timeline = self._timelines.get(pool.type)
            if timeline is not None:
                timeline.settle(_present(pool, now))
                # Steps begin at the same times whenever it is drawn, or all of it would tremble.
                until = (now // (span / _STEPS) + 1) * (span / _STEPS)
                window = Window(until - span, until)
                drawn = series_of(timeline, window, steps=_STEPS)
                if any(drawn.held) or any(drawn.waiting):
                    self._drawn[pool.type] = drawn
        return self._drawn

    def _read(self, now: float) -> None:
        wanted = EventFilter(since=now - _SPANS_SECONDS[-1])
        for event in self._log.read(wanted, after=self._last):
            self._last = max(self._last, event.number)
            self._timelines.setdefault(event.type, Timeline()).add(event)

    def _span(self, now: float) -> float:
        """How much of the past is shown: the same for all, so that they can be compared."""
        firsts = (each.first for each in self._timelines.values() if each.first is not None)
        known = now - min(firsts, default=now)
        return next((each for each in _SPANS_SECONDS if known <= each), _SPANS_SECONDS[-1])


def _present(pool: ShownPool, at: float) -> Present:
    held = {each.name: each.lease.lease.acquire_time for each in pool.resources if each.lease}
    waiting = {each.ticket: each.since for each in pool.queue}
    return Present(at, pool.capacity, held, waiting)
