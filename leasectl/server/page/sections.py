"""The sections of the page: what is in them, in which order, and for which views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from markupsafe import Markup

from leasectl.engines.facts import NO_SETTINGS
from leasectl.model import Labels
from leasectl.pools.counted import CountedType, Counts
from leasectl.pools.lease_bars import LeaseBar
from leasectl.pools.overview import (
    Holder,
    Overview,
    ShownLease,
    ShownPool,
    ShownResource,
    ShownWaiter,
    by_number,
    timeless,
    what_is_noted,
    why_unavailable,
)
from leasectl.pools.settings import describe
from leasectl.pools.statistics import Series
from leasectl.server.page.document import render, shown
from leasectl.server.page.pictures import HEIGHT, ROW, WAIT, WIDTH, charts_of, lanes_of, time_axis
from leasectl.server.page.view import View
from leasectl.text.durations import format_duration
from leasectl.text.naming import BUILD_LABEL, as_given, build_url_in, short_handle, short_name
from leasectl.text.properties import described, written
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


class PoolHistory(Protocol):
    """How things went in a pool."""

    def version(self, at: float) -> object:
        """Return what changes with each event, and as time goes on."""

    def series(self, view: View, at: float) -> Series:
        """Return how things went in the stretch of time that a view shows."""

    def bars(self, since: float, until: float) -> Sequence[LeaseBar]:
        """Return the leases in a stretch of time."""


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


def totals(overview: Overview) -> str:
    """All pools in a few words, for the title of a tab."""
    pools = overview.pools
    return in_words(
        sum(pool.held for pool in pools),
        sum(pool.capacity for pool in pools),
        sum(len(pool.queue) for pool in pools),
    )


def in_words(held: int, capacity: int, waiting: int) -> str:
    """How much is held of all there is, and how many wait."""
    return f"{held}/{capacity} held" + (f", {waiting} waiting" if waiting else "")


def _counted(pool: ShownPool) -> object:
    has_to_wait = pool.next_grant_in_seconds > 0
    return (
        *(pool.type, pool.capacity, pool.held, pool.unavailable, len(pool.queue)),
        *(_oldest(pool), pool.settings, has_to_wait, is_cordoned(pool)),
    )


def _oldest(pool: ShownPool) -> float | None:
    """Return since when somebody has waited longest; None where nobody waits."""
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
        pools=[(pool, _oldest(pool), is_cordoned(pool), _facts(pool)) for pool in found],
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
        facts=_facts(pool),
        is_cordoned=is_cordoned(pool),
        next_grant=at + pool.next_grant_in_seconds if pool.next_grant_in_seconds > 0 else None,
        held=[_held_row(each, each.lease, pool.type) for each in held[:MOST_ROWS] if each.lease],
        queue=[_waiting_row(each, pool.type) for each in queue[:MOST_ROWS]],
        with_priority=any(each.priority or each.effective_priority for each in queue),
        counts=(len(held), len(queue)),
        closed=[_free(each, pool.type) for each in free if each.is_unavailable][:MOST_CLOSED],
        free=[_free(each, pool.type) for each in free if not each.is_unavailable][:MOST_FREE],
        first_rows=FIRST_ROWS_ALONE if view.pool else FIRST_ROWS,
        picture=None if history is None else _picture(pool, history, at, view),
        now=now,
        view=view,
    )


def _picture(pool: ShownPool, history: PoolHistory, at: float, view: View) -> dict[str, object]:
    series = history.series(view, at)
    bars = history.bars(series.since, series.until) if view.pool else ()
    return {
        "size": (WIDTH, HEIGHT, ROW, WAIT),
        "ticks": time_axis(series.since, series.until),
        "charts": charts_of(series, pool),
        "lanes": lanes_of(bars, pool, series.since, series.until) if view.pool else None,
    }


def _facts(pool: ShownPool) -> list[str]:
    facts = [describe(pool.settings)] if pool.settings != NO_SETTINGS else []
    if pool.default_grace_seconds is not None:
        facts.append(f"default pool, grace {format_duration(pool.default_grace_seconds)}")
    return facts


def _held_row(resource: ShownResource, lease: ShownLease, pool_type: str) -> dict[str, object]:
    at, fence = lease.lease.acquire_time, lease.lease.fence
    return {
        "key": f"{pool_type}/{resource.name}/{fence}/{at}",
        "name": short_name(resource.name, pool_type),
        "title": resource.name,
        "properties": described(resource.properties),
        "who": _who(lease.holder, pool_type, lease.lease.labels, _guard(lease)),
        "notes": [*_lease_notes(lease), *_notes(resource)],
        "since": at,
        "release_time": lease.release_time if lease.ended is None else None,
        "renewed": _renewed(lease),
        "expires": lease.expires_in_seconds,
        "is_ended": lease.ended is not None,
    }


def _waiting_row(waiter: ShownWaiter, pool_type: str) -> dict[str, object]:
    stopped = ("suspended", "This waiter is stopped; requests behind it may go first.")
    return {
        "key": f"{pool_type}/{waiter.ticket}/{waiter.since}",
        "position": waiter.position,
        "who": _who(waiter.holder, pool_type, waiter.labels),
        "notes": [stopped] if waiter.suspended else [],
        "since": waiter.since,
        "wants": short_name(waiter.name, pool_type) if waiter.name else str(waiter.count),
        "title": waiter.name,
        "where": shown(" ".join(written(waiter.where))),
        "priority": waiter.effective_priority,
        "asked": waiter.priority,
    }


def _free(resource: ShownResource, pool_type: str) -> dict[str, object]:
    why = why_unavailable(resource)
    not_granted = [(why, "Free, but not granted to anybody.")] if why else []
    return {
        "name": short_name(resource.name, pool_type),
        "notes": [*not_granted, *_notes(resource)],
        "properties": described(resource.properties),
    }


def _notes(resource: ShownResource) -> list[tuple[str, str]]:
    """Where a resource goes, for how long it stays, who cordoned it, and a reclaim."""
    meaning = "See: leasectl status --wide"
    return [(shown(each), meaning) for each in what_is_noted(resource, full=False)]


def _lease_notes(lease: ShownLease) -> Iterable[tuple[str, str]]:
    if lease.ended is not None:
        yield f"ended: {shown(lease.ended)}", "By force; kept for its holder so long"
    if lease.unconfirmed:
        yield "unconfirmed", "The client has not confirmed this grant."


def _guard(lease: ShownLease) -> str:
    return "unguarded" if lease.guard == "none" else ""


def _renewed(lease: ShownLease) -> str:
    if lease.renewed_by not in ("run", "keeper"):
        return ""
    ttl = format_duration(lease.lease.lease_duration_seconds or 0.0)
    return f"renewed by {lease.renewed_by} (ttl {ttl})"


def _who(holder: Holder, pool_type: str, labels: Labels, guard: str = "") -> dict[str, object]:
    """A holder: the job or user, then the parts that tell its leases apart."""
    rest = [holder.build, holder.host, short_handle(holder.handle, pool_type), guard]
    rest += [f"{key}={value}" for key, value in labels if key != BUILD_LABEL]
    return {
        "first": shown(holder.name),
        "rest": [shown(each) for each in rest if each],
        "title": shown(as_given(holder.identity)),
        "url": build_url_in(labels),
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


def totals_of_counts(counts: Counts) -> str:
    """All types in a few words, for the title of a tab."""
    types = counts.types
    return in_words(
        sum(each.held for each in types),
        sum(each.capacity for each in types),
        sum(each.waiting for each in types),
    )
