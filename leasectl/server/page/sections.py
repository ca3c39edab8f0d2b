"""The sections of the page: what each shows, and when it has to be written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.engines.facts import NO_SETTINGS
from leasectl.pools.series import Series
from leasectl.pools.settings import describe
from leasectl.pools.shown import Overview, ShownLease, ShownPool, timeless
from leasectl.server.page.markup import Content, Markup, joined, tag
from leasectl.server.page.picture import picture
from leasectl.server.page.rows import free_list, holders_table, queue_table
from leasectl.server.page.times import since, until
from leasectl.text.durations import format_duration
from leasectl.text.suggestions import NO_POOLS
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

# Beyond so many, pools in which nothing is held and nobody waits are in the summary only.
_MOST_SECTIONS = 100
# What a time that is found by two clocks may differ by from one look to the next.
_SAME_SECONDS = 5.0
_BAR_WIDTH = 100


class Section(NamedTuple):
    """A part of the page that is written, and replaced, as a whole.

    Args:
        id: Of its element.
        facts: What it shows; the same facts look the same, but for time that goes on.
        write: Makes the HTML of it, as it is at a time; wall clock, seconds since the epoch.
    """

    id: str
    facts: object
    write: Callable[[float], Markup]


def sections_of(overview: Overview, histories: Mapping[str, Series]) -> tuple[Section, ...]:
    """What there is to show.

    Args:
        overview: The pools now.
        histories: How things went in them, by type; those that anything is known of.
    """
    pools = sorted(overview.pools, key=lambda pool: pool.type)
    busy = [pool for pool in pools if pool.held or pool.queue or pool.type in histories]
    summary = Section(
        "pools",
        tuple(map(_counted, pools)),
        lambda now: _summary(pools, {pool.type for pool in busy[:_MOST_SECTIONS]}, overview, now),
    )
    return (
        summary,
        *(
            _pool_section(pool, histories.get(pool.type), overview.at)
            for pool in busy[:_MOST_SECTIONS]
        ),
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
    longest = min((each.since for each in pool.queue), default=0.0)
    return (
        *(pool.type, pool.capacity, pool.held, pool.closed, len(pool.queue)),
        *(longest, pool.settings, has_to_wait),
    )


def _summary(pools: Sequence[ShownPool], shown: set[str], overview: Overview, now: float) -> Markup:
    if not pools:
        return tag("section", tag("p", NO_POOLS), id="pools", aria_label="Pools")
    titles = ["Pool", "Held", "Free", "Waiting", "Longest wait"]
    with_pace = any(each.settings.pace_seconds for each in pools)
    if with_pace:
        titles.append("Next grant")
    head = joined(tag("th", each, scope="col", role="columnheader") for each in titles)
    rows = joined(
        _summary_row(each, each.type in shown, overview.at if with_pace else None, now)
        for each in pools
    )
    table = tag(
        "table",
        tag("caption", "Pools", class_="hidden"),
        tag("thead", tag("tr", head, role="row"), role="rowgroup"),
        tag("tbody", rows, role="rowgroup"),
        role="table",
        class_="pools",
    )
    return tag("section", table, id="pools", aria_label="Pools")


def _summary_row(pool: ShownPool, is_linked: bool, at: float | None, now: float) -> Markup:
    name = tag("a", pool.type, href=f"#pool-{pool.type}") if is_linked else pool.type
    longest = min((each.since for each in pool.queue), default=None)
    cells: list[tuple[str, Content]] = [
        ("Held", joined((_bar(pool), tag("span", f"{pool.held} of {pool.capacity}")))),
        ("Free", str(pool.free)),
        ("Waiting", str(len(pool.queue))),
        ("Longest wait", "—" if longest is None else since(longest, now)),
    ]
    if at is not None:
        cells.append(("Next grant", _next_grant(pool, at, now) or "—"))
    return tag(
        "tr",
        tag("th", name, scope="row", role="rowheader"),
        joined(tag("td", cell, role="cell", data_title=title) for title, cell in cells),
        role="row",
        data_key=pool.type,
    )


def _bar(pool: ShownPool) -> Markup:
    """How much is held, as a bar; the number stands beside it."""
    share = pool.held / pool.capacity if pool.capacity else 0.0
    filled = round(share * _BAR_WIDTH, 1)
    return tag(
        "svg",
        tag("rect", width=_BAR_WIDTH, height=10, class_="ground"),
        tag("rect", width=filled, height=10, class_="full" if share == 1 else "part"),
        viewBox=f"0 0 {_BAR_WIDTH} 10",
        preserveAspectRatio="none",
        class_="bar",
        aria_hidden="true",
    )


def _pool_section(pool: ShownPool, history: Series | None, at: float) -> Section:
    ends = tuple(_end(each.lease, at) for each in pool.resources if each.lease is not None)
    facts = timeless(pool), pool.next_grant_in_seconds > 0, history, ends
    return Section(f"pool-{pool.type}", facts, lambda now: _pool(pool, history, at, now))


def _end(shown: ShownLease, at: float) -> float | None:
    """Roughly when a lease ends that nobody here renews: another time is a renewal."""
    if shown.expires_in_seconds is None or shown.renewed_by in ("run", "keeper"):
        return None
    return round((at + shown.expires_in_seconds) / _SAME_SECONDS)


def _pool(pool: ShownPool, history: Series | None, at: float, now: float) -> Markup:
    drawn = picture(history, pool) if history is not None else Markup()
    held = tag(
        "div",
        tag("h3", f"Held ({pool.held})", id=f"held-{pool.type}"),
        holders_table(pool.resources, pool.type, now) or tag("p", "Nothing is held."),
        free_list(pool.resources, pool.type),
    )
    queue = tag(
        "div",
        tag("h3", f"Waiting ({len(pool.queue)})", id=f"queue-{pool.type}"),
        queue_table(pool.queue, pool.type, now) or tag("p", "Nobody waits."),
    )
    return tag(
        "section",
        tag("h2", pool.type, id=f"name-{pool.type}"),
        tag("p", joined(_facts(pool, at, now), " · "), class_="facts"),
        drawn,
        tag("div", held, queue, class_="both"),
        id=f"pool-{pool.type}",
        aria_labelledby=f"name-{pool.type}",
    )


def _facts(pool: ShownPool, at: float, now: float) -> list[Content]:
    facts: list[Content] = [
        tag("a", f"{pool.held} of {pool.capacity} held", href=f"#held-{pool.type}"),
        tag("a", f"{len(pool.queue)} waiting", href=f"#queue-{pool.type}"),
    ]
    if pool.settings != NO_SETTINGS:
        facts.append(describe(pool.settings))
    if pool.default_grace_seconds is not None:
        facts.append(
            f"takes what nobody claims, after {format_duration(pool.default_grace_seconds)}"
        )
    next_grant = _next_grant(pool, at, now)
    if next_grant:
        facts.append(joined(("next grant ", next_grant)))
    return facts


def _next_grant(pool: ShownPool, at: float, now: float) -> Markup:
    """When the pool's pace allows the next grant; nothing when it does so now."""
    if pool.next_grant_in_seconds <= 0:
        return Markup()
    return until(at + pool.next_grant_in_seconds, now)
