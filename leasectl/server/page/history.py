"""The last day of each pool, from its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.engines.pool_admin import EventLog
from leasectl.pools.lease_bars import LeaseBar, LeaseBars
from leasectl.pools.overview import ShownPool
from leasectl.pools.statistics import Series, Window, series_of
from leasectl.pools.timeline import Present, Timeline
from leasectl.server.page.view import RANGES, View
from leasectl.state.event import Event, EventFilter, Missed

_LONGEST_SECONDS = max(seconds for _, seconds in RANGES.values())
_STEPS = 120
# Charts are drawn anew no more often, as who looks sees no difference.
_SAME_SERIES_SECONDS = 10.0
# A chart goes on so often while nothing happens.
_STEP_SECONDS = 30.0
# What has gone by is forgotten by reading again what is still shown, so often.
_READ_AGAIN_SECONDS = 3600.0


class History:
    """The pools' last day.

    Args:
        log: What happened in them.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        self._read_at = now
        self._last = 0
        self._pools: dict[str, PoolHistory] = {}

    def of_pools(self, pools: Sequence[ShownPool], now: float) -> Mapping[str, PoolHistory]:
        """Return the history of each pool that was used, by type.

        Args:
            pools: As they are.
            now: Wall clock, seconds since the epoch.

        Raises:
            LeaseError: The events can't be read.
        """
        if not 0 <= now - self._read_at < _READ_AGAIN_SECONDS:
            self._begin(now)
        self._read(now)
        found = {}
        for pool in pools:
            history = self._pools.get(pool.type)
            if history is not None:
                history.settle(pool, now)
                if history.has_use:
                    found[pool.type] = history
        return found

    def _read(self, now: float) -> None:
        wanted = EventFilter(since=now - _LONGEST_SECONDS)
        missed = list[Missed]()
        for event in self._log.read(wanted, after=self._last, missed=missed.append):
            self._last = max(self._last, event.number)
            if event.type not in self._pools:
                self._pools[event.type] = PoolHistory()
            self._pools[event.type].add(event)
        if any(each.is_restored for each in missed):
            self._begin(now)
            self._read(now)


class PoolHistory:
    """The last day of a pool."""

    def __init__(self) -> None:
        self._timeline, self._bars = Timeline(), LeaseBars()
        self._events = 0
        self._series: dict[str, tuple[float, Series]] = {}  # by range, with when it was made
        self.has_use = False

    def add(self, event: Event) -> None:
        """Add what happened next."""
        self._events += 1
        self.has_use = self.has_use or event.kind in ("queued", "granted", "released")
        self._timeline.add(event)
        self._bars.add(event)

    def settle(self, pool: ShownPool, now: float) -> None:
        """Believe the pool where its events say something else."""
        leases = [each.lease.lease for each in pool.resources if each.lease]
        held = {each.name: each.acquire_time for each in leases}
        waiting = {each.ticket: each.since for each in pool.queue}
        self._timeline.settle(Present(now, pool.capacity, held, waiting))
        self._bars.settle(leases)
        self.has_use = self.has_use or bool(held or waiting)

    def version(self, at: float) -> object:
        """Return what changes with each event, and as time goes on."""
        return self._events, at // _STEP_SECONDS

    def series(self, view: View, at: float) -> Series:
        """Return the chart of the time range that a view shows."""
        made = self._series.get(view.range)
        if made is None or not 0 <= at - made[0] < _SAME_SERIES_SECONDS:
            # Steps begin at the same times whenever it is drawn, or all of it would tremble.
            step = view.seconds / _STEPS
            until = (at // step + 1) * step
            window = Window(until - view.seconds, until)
            made = self._series[view.range] = at, series_of(self._timeline, window, steps=_STEPS)
        return made[1]

    def bars(self, since: float, until: float) -> Sequence[LeaseBar]:
        """Return the leases in a time range."""
        return self._bars.within(since, until)
