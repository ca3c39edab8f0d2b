"""The sections of the page: what is in them, in which order, and for which views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from markupsafe import Markup

from leasectl.pools.counted import CountedType, Counts
from leasectl.pools.overview import (
    Overview,
    ShownLease,
    ShownPool,
    ShownResource,
    ShownWaiter,
    by_number,
    timeless,
)
from leasectl.server.page.document import render
from leasectl.server.page.history import PoolHistory
from leasectl.server.page.pictures import HEIGHT, WIDTH, charts_of, lanes_of, time_axis
from leasectl.server.page.view import View
from leasectl.text.wording import NO_POOLS

# What stands open among all pools, and on a pool's own page; what can be opened; what is counted.
FIRST_ROWS, FIRST_ROWS_ALONE = 5, 20
MOST_ROWS = 500
MOST_FREE, MOST_CLOSED = 500, 20
# Beyond so many, pools in which nothing is held and nobody waits are in the summary only.
_MOST_SECTIONS = 100
# What a time that is found by two clocks may differ by from one look to the next.
_SAME_SECONDS = 5.0

ANY_VIEW = View()
_Item = TypeVar("_Item")
Keys = Mapping[str, Callable[[Any], Any]]


class Section(NamedTuple):
    """A part of the page that is written, and replaced, as a whole.

    Args:
        id: Of its element.
        facts: What it shows; the same facts look the same, but for time that goes on.
        write: Makes the HTML of it at a time (wall clock, seconds since the epoch) for a view.
        is_in: Tells whether a view shows it.
    """

    id: str
    facts: object
    write: Callable[[float, View], Markup]
    is_in: Callable[[View], bool] = lambda view: True


def sections_of(overview: Overview, histories: Mapping[str, PoolHistory]) -> tuple[Section, ...]:
    """What there is to show.

    Args:
        overview: The pools now.
        histories: How things went in them, by type; those that anything is known of.
    """
    pools = sorted(overview.pools, key=lambda pool: pool.type)
    busy = [pool for pool in pools if pool.held or pool.queue or pool.type in histories]
    among_all = {pool.type for pool in busy[:_MOST_SECTIONS]}
    types = {pool.type for pool in pools}
    summary = Section(
        "pools",
        tuple(map(_counted, pools)),
        lambda now, view: _summary(pools, overview.at, now, view),
        lambda view: view.pool not in types,
    )

    def section(pool: ShownPool) -> Section:
        history, at = histories.get(pool.type), overview.at
        ends = tuple(_end(each.lease, at) for each in pool.resources if each.lease is not None)
        version = None if history is None else history.version(at)
        return Section(
            f"pool-{pool.type}",
            (timeless(pool), pool.next_grant_in_seconds > 0, version, ends),
            lambda now, view: _pool(pool, history, at, now, view),
            lambda view: _is_in(view, pool, among_all),
        )

    return (summary, *map(section, pools))


def _is_in(view: View, pool: ShownPool, among_all: set[str]) -> bool:
    if view.pool:
        return view.pool == pool.type
    return pool.type in among_all and (
        view.has(pool.type) or bool(_held(pool, view) or _queue(pool, view))
    )


def totals(pools: Iterable[tuple[int, int, int]]) -> str:
    """Return how much is held of all there is, and how many wait, for the title of a tab."""
    held, capacity, waiting = (sum(column) for column in zip((0, 0, 0), *pools))
    return f"{held}/{capacity} held" + (f", {waiting} waiting" if waiting else "")


def _counted(pool: ShownPool) -> object:
    has_to_wait = pool.next_grant_in_seconds > 0
    return (
        *(pool.type, pool.capacity, pool.held, pool.unavailable, len(pool.queue)),
        *(_oldest(pool), pool.settings, has_to_wait, is_cordoned(pool)),
    )


def _oldest(pool: ShownPool) -> float | None:
    """Return when the oldest request was made; None without any."""
    return min((each.since for each in pool.queue), default=None)


def is_cordoned(pool: ShownPool) -> bool:
    """Tell whether none of a pool's resources takes a new holder."""
    return bool(pool.resources) and all(
        not each.membership.takes_holders for each in pool.resources
    )


_POOL_KEYS: Keys = {
    "pool": lambda pool: pool.type,
    "held": lambda pool: pool.held,
    "free": lambda pool: pool.free,
    "waiting": lambda pool: len(pool.queue),
    "longest-wait": lambda pool: -(_oldest(pool) or float("inf")),
}
_HELD_KEYS: Keys = {
    "resource": lambda each: by_number(each.name),
    "holder": lambda each: each.lease.holder.identity,
    "held-for": lambda each: -each.lease.lease.acquire_time,
    "ends": lambda each: _soonest_end(each.lease),
}
_QUEUE_KEYS: Keys = {
    "position": lambda each: each.position,
    "holder": lambda each: each.holder.identity,
    "waited": lambda each: -each.since,
    "wants": lambda each: (each.name or "", each.count),
    "priority": lambda each: each.effective_priority,
}


def _soonest_end(lease: ShownLease) -> tuple[bool, float]:
    times = [lease.release_time, lease.expires_in_seconds]
    known = [each for each in times if each is not None]
    return not known, min(known, default=0.0)


def _sorted(items: Iterable[_Item], keys: Keys, view: View) -> list[_Item]:
    """Return items in the order that a view wants, if it is by one of their columns."""
    key = keys.get(view.sort.removeprefix("-"))
    return sorted(items, key=key, reverse=view.sort.startswith("-")) if key else list(items)


def _summary(pools: Sequence[ShownPool], at: float, now: float, view: View) -> Markup:
    found = [
        pool
        for pool in _sorted(pools, _POOL_KEYS, view)
        if view.has(pool.type) or _held(pool, view) or _queue(pool, view)
    ]
    return render(
        "pools.html",
        pools=[(pool, _oldest(pool), is_cordoned(pool)) for pool in found],
        with_pace=any(each.settings.pace_seconds for each in found),
        with_unavailable=any(each.unavailable for each in found),
        nothing=NO_POOLS if not pools else "No pool, lease or request matches.",
        at=at,
        now=now,
        view=view,
    )


def _end(shown_lease: ShownLease, at: float) -> float | None:
    """The rough end of a lease that is renewed elsewhere; it changes with each renewal."""
    if shown_lease.expires_in_seconds is None or shown_lease.renewed_by in ("run", "keeper"):
        return None
    return round((at + shown_lease.expires_in_seconds) / _SAME_SECONDS)


def _held(pool: ShownPool, view: View) -> list[ShownResource]:
    """Return the resources that a view shows as held, the longest first."""
    is_all = view.has(pool.type)
    found = [
        each
        for each in pool.resources
        if each.lease and (is_all or view.has_holder(each.lease.holder, each.name))
    ]
    found.sort(key=lambda each: (each.lease.lease.acquire_time if each.lease else 0.0, each.name))
    return _sorted(found, _HELD_KEYS, view)


def _queue(pool: ShownPool, view: View) -> list[ShownWaiter]:
    is_all = view.has(pool.type)
    found = [e for e in pool.queue if is_all or view.has_holder(e.holder, e.name or "")]
    return _sorted(found, _QUEUE_KEYS, view)


def _pool(
    pool: ShownPool, history: PoolHistory | None, at: float, now: float, view: View
) -> Markup:
    held, queue = _held(pool, view), _queue(pool, view)
    free = [each for each in pool.resources if each.lease is None]
    return render(
        "pool.html",
        pool=pool,
        is_cordoned=is_cordoned(pool),
        at=at,
        held=held[:MOST_ROWS],
        queue=queue[:MOST_ROWS],
        with_priority=any(each.priority or each.effective_priority for each in queue),
        counts=(len(held), len(queue)),
        closed=[each for each in free if each.is_unavailable][:MOST_CLOSED],
        free=[each for each in free if not each.is_unavailable][:MOST_FREE],
        first_rows=FIRST_ROWS_ALONE if view.pool else FIRST_ROWS,
        picture=None if history is None else _picture(pool, history, at, view),
        now=now,
        view=view,
    )


def _picture(pool: ShownPool, history: PoolHistory, at: float, view: View) -> dict[str, object]:
    series = history.series(view, at)
    bars = history.bars(series.since, series.until) if view.pool else ()
    return {
        "size": (WIDTH, HEIGHT),
        "ticks": time_axis(series.since, series.until),
        "charts": charts_of(series, pool),
        "lanes": lanes_of(bars, pool, series.since, series.until) if view.pool else None,
    }


def sections_of_counts(counts: Counts) -> tuple[Section, ...]:
    """What there is to show of a server that only counts.

    Args:
        counts: As they are now.
    """

    def section(each: CountedType) -> Section:
        def write(now: float, view: View) -> Markup:
            return render("counts.html", counted=each, most=MOST_ROWS, now=now, view=view)

        return Section(f"pool-{each.type}", each, write)

    def summary(now: float, view: View) -> Markup:
        return render("counts.html", counted=None, counts=counts, now=now, view=view)

    return Section("pools", counts.types, summary), *map(section, counts.types)
