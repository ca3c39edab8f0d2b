"""The sections of the page: pools, holders, queues, charts and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from leasectl.engines.facts import NO_SETTINGS
from leasectl.model import Labels
from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.pools.settings import describe
from leasectl.pools.shown import (
    Holder,
    Overview,
    ShownLease,
    ShownPool,
    ShownResource,
    ShownWaiter,
    timeless,
    what_is_noted,
    why_unavailable,
)
from leasectl.pools.statistics import Series
from leasectl.server.page.document import Content, Markup, joined, since, tag, until
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given, build_url_in
from leasectl.text.properties import described, written
from leasectl.text.suggestions import NO_POOLS
from leasectl.text.wording import printable

_HEIGHT = 40
# No line at the very edge, where half of it would be cut off.
_EDGE = 1


def picture(history: Series, pool: ShownPool) -> Markup:
    """Held, waiting and starts a minute, one below the other.

    Args:
        history: How things went.
        pool: As it is now.
    """
    capacity = max((pool.capacity, *(history.capacity or ())))
    # What is known of now may be later than the history.
    most_held = max(pool.held, history.peak_held)
    most_waiting = max(len(pool.queue), history.peak_waiting)
    most_starts = max(history.starts)
    span = history.until - history.since
    axis = f"{_ago(span)} ago", f"{_ago(span / 2)} ago", "now"
    bands = (
        _band(
            "held",
            f"Held: {pool.held} now, at most {most_held} of {_number(capacity)}",
            axis,
            _capacity_line(history, capacity),
            tag("path", d=_area(history.held, capacity)),
        ),
        _band(
            "waiting",
            f"Waiting: {len(pool.queue)} now, at most {most_waiting}",
            axis,
            tag("path", d=_area(history.waiting, max(1.0, *history.waiting))),
        ),
        _band(
            "starts",
            f"Starts a minute: at most {most_starts}",
            axis,
            tag("path", d=_bars(history.starts, most_starts)),
        ),
    )
    return tag("figure", *bands, class_="history")


def _band(kind: str, title: str, axis: Sequence[str], *shapes: Markup) -> Markup:
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 1000 {_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    times = joined(tag("span", each) for each in axis)
    below = tag("p", times, class_="axis", aria_hidden="true")
    return tag("div", tag("p", title), drawing, below, class_=f"band {kind}")


def _capacity_line(history: Series, top: float) -> Markup:
    if history.capacity is None:
        return Markup()
    step = 1000 / len(history.capacity)
    points = " ".join(
        f"{_x(n * step)},{_y(value, top)} {_x((n + 1) * step)},{_y(value, top)}"
        for n, value in enumerate(history.capacity)
    )
    return tag("polyline", points=points, class_="capacity")


def _area(values: Sequence[float], top: float) -> str:
    """The outline of an area from the ground up to the values, as steps."""
    step = 1000 / len(values)
    parts = [f"M0,{_HEIGHT}"]
    drawn = ""
    for n, value in enumerate(values):
        y = _y(value, top)
        if y != drawn:
            parts.append(f"H{_x(n * step)}V{y}")
            drawn = y
    return "".join([*parts, f"H1000V{_HEIGHT}Z"])


def _bars(values: Sequence[float], top: float) -> str:
    """A bar for each value that isn't zero."""
    step = 1000 / len(values)
    return "".join(
        f"M{_x(n * step)},{_HEIGHT}V{_y(value, top)}H{_x((n + 1) * step)}V{_HEIGHT}Z"
        for n, value in enumerate(values)
        if value
    )


def _x(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _y(value: float, top: float) -> str:
    room = _HEIGHT - _EDGE
    return _x(_HEIGHT - room * min(1.0, value / top if top else 0.0))


def _number(value: float) -> str:
    """A number that is an average, as people read it: 0.4 of one is some, and not none."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".replace(".0", "")


def _ago(seconds: float) -> str:
    return format_duration(round(seconds))


# What stands open, what can be opened, and what is only counted.
FIRST_ROWS = 50
MOST_ROWS = 500
MOST_FREE = 500
_LONGEST_TEXT = 300

Cells = Sequence[tuple[str, Content]]


def holders_table(resources: Sequence[ShownResource], pool_type: str, now: float) -> Markup:
    """Who holds what, the longest first.

    Args:
        resources: Of the pool; those that are free are left out.
        pool_type: Its type, which names aren't repeated with.
        now: Wall clock, seconds since the epoch.
    """
    held = [(each, each.lease) for each in resources if each.lease is not None]
    held.sort(key=lambda each: (each[1].lease.acquire_time, each[0].name))
    rows = [_held_row(each, lease, pool_type, now) for each, lease in held[:MOST_ROWS]]
    return table_of("held", pool_type, f"Holders of {pool_type}", rows, len(held))


def queue_table(queue: Sequence[ShownWaiter], pool_type: str, now: float) -> Markup:
    """The queue as a table, in its order."""
    with_priority = any(each.priority or each.effective_priority for each in queue)
    rows = [_waiting_row(each, pool_type, now, with_priority) for each in queue[:MOST_ROWS]]
    return table_of("queue", pool_type, f"Waiters for {pool_type}", rows, len(queue))


def free_list(resources: Sequence[ShownResource], pool_type: str) -> Markup:
    """The names of what is free, to be opened; nothing where nothing is."""
    free = [each for each in resources if each.lease is None]
    if not free:
        return Markup()
    closed = sum(each.is_unavailable for each in free)
    count = f"{len(free) - closed} free" + (f", {closed} cordoned or held back" if closed else "")
    shown = joined(tag("li", _free(each, pool_type)) for each in free[:MOST_FREE])
    return tag(
        "details",
        tag("summary", count),
        tag("ul", shown, class_="free"),
        _more(len(free) - MOST_FREE, pool_type),
        id=f"free-{pool_type}",
    )


def _held_row(
    resource: ShownResource, shown: ShownLease, pool_type: str, now: float
) -> tuple[str, Cells]:
    name, notes = resource.name, joined((_notes(shown), _membership(resource)))
    cells = (
        ("Resource", joined((_name(name, pool_type), _properties(resource)))),
        (
            "Holder",
            joined((_holder(shown.holder, pool_type, _guard(shown), shown.lease.labels), notes)),
        ),
        ("Held for", since(shown.lease.acquire_time, now)),
        ("Ends", _ends(shown, now)),
    )
    return f"{pool_type}/{name}/{shown.lease.fence}/{shown.lease.acquire_time}", cells


def _name(name: str, pool_type: str) -> Markup:
    return tag("span", _short(name, pool_type), title=name, class_="name")


def _free(resource: ShownResource, pool_type: str) -> Markup:
    """A resource without a holder: why it isn't granted, and its properties."""
    why = why_unavailable(resource)
    closed = _note(why, "Free, but not granted to anybody.") if why else None
    name = tag("bdi", _short(resource.name, pool_type))
    said = (name, closed, _membership(resource), _properties(resource))
    return joined(filter(None, said), " ")


def _properties(resource: ShownResource) -> Markup | None:
    """The properties of a resource in small print; None if it has none."""
    if not resource.properties:
        return None
    text = _text(described(resource.properties))
    return tag("bdi", text, class_="where", title=text)


def _membership(resource: ShownResource) -> Markup:
    """Where a resource goes, for how long it stays, and whether it was asked back."""
    return joined(
        _note(_text(each), "See: leasectl status --wide")
        for each in what_is_noted(resource, full=False)
    )


def _waiting_row(
    waiter: ShownWaiter, pool_type: str, now: float, with_priority: bool
) -> tuple[str, Cells]:
    wants = _short(waiter.name, pool_type) if waiter.name else str(waiter.count)
    where = _text(" ".join(written(waiter.where)))
    particular = tag("bdi", where, class_="where", title=where) if where else None
    note = _note("suspended", "This waiter is stopped; requests behind it may go first.")
    cells: list[tuple[str, Content]] = [
        ("Position", str(waiter.position)),
        (
            "Holder",
            joined(
                (
                    _holder(waiter.holder, pool_type, labels=waiter.labels),
                    note if waiter.suspended else None,
                )
            ),
        ),
        ("Waited", since(waiter.since, now)),
        ("Wants", joined((tag("span", wants, title=waiter.name), particular))),
    ]
    if with_priority:
        cells.append(("Priority", _priority(waiter)))
    return f"{pool_type}/{waiter.ticket}/{waiter.since}", cells


def _priority(waiter: ShownWaiter) -> Content:
    gained = waiter.effective_priority - waiter.priority
    if not gained:
        return str(waiter.priority)
    why = f"asked for {waiter.priority}, and {gained} gained by waiting"
    return tag("span", str(waiter.effective_priority), tag("sup", f"+{gained}"), title=why)


def _holder(holder: Holder, pool_type: str, guard: str = "", labels: Labels = ()) -> Markup:
    """A holder: the job or user, then the parts that tell its leases apart."""
    first = holder.job or holder.owner or holder.identity
    rest = [holder.build, holder.host, _without_type(holder.handle, pool_type), guard]
    lines = [tag("bdi", _text(first), class_="who")]
    url = build_url_in(labels)
    if url:
        lines = [tag("a", *lines, href=url, rel="noreferrer")]
    more = joined((tag("bdi", _text(each)) for each in rest if each), " · ")
    if more:
        lines.append(tag("span", more, class_="where"))
    return tag("span", *lines, class_="holder", title=_text(as_given(holder.identity)))


def _notes(shown: ShownLease) -> Markup:
    """What a person should know of a lease beside its times."""
    notes = []
    if shown.ended is not None:
        notes.append(_note(f"ended: {_text(shown.ended)}", "By force; kept for its holder so long"))
    if shown.unconfirmed:
        notes.append(_note("unconfirmed", "The client has not confirmed this grant."))
    return joined(notes)


def _guard(shown: ShownLease) -> str:
    return "unguarded" if shown.guard == "none" else ""


def _ends(shown: ShownLease, now: float) -> Content:
    """When a lease ends, by a release or by itself."""
    lines: list[Content] = []
    if shown.release_time is not None and shown.ended is None:
        lines.append(joined((until(shown.release_time, now), " (release)")))
    if shown.expires_in_seconds is not None:
        lines.append(_expiry(shown, now))
    return joined(tag("span", each, class_="line") for each in lines) if lines else "—"


def _expiry(shown: ShownLease, now: float) -> Content:
    if shown.renewed_by in ("run", "keeper"):
        ttl = format_duration(shown.lease.lease_duration_seconds or 0.0)
        return f"renewed by {shown.renewed_by} (ttl {ttl})"
    left = until(now + max(0.0, shown.expires_in_seconds or 0.0), now)
    return left if shown.ended is not None else joined((left, " unless renewed"))


def table_of(
    kind: str, pool_type: str, caption: str, rows: list[tuple[str, Cells]], count: int
) -> Markup:
    """A table; with many rows, most of them are in another one that can be opened.

    Args:
        kind: What its rows are.
        pool_type: Of what.
        caption: What it shows, for who can't see it.
        rows: Those that are shown, each with what tells it from others; none for no table.
        count: How many there are.
    """
    if not rows:
        return Markup()
    parts = [_rows(kind, caption, rows[:FIRST_ROWS])]
    if len(rows) > FIRST_ROWS:
        summary = tag("summary", f"{len(rows) - FIRST_ROWS} more")
        rest = _rows(kind, f"{caption}, continued", rows[FIRST_ROWS:])
        more = _more(count - len(rows), pool_type)
        parts.append(tag("details", summary, rest, more, id=f"more-{kind}-{pool_type}"))
    return joined(parts)


def _rows(kind: str, caption: str, rows: list[tuple[str, Cells]]) -> Markup:
    # Roles are said although they are those of the elements: on a phone rows are laid out as
    # blocks, and browsers then forget that it is a table.
    titles = joined(
        tag("th", title, scope="col", role="columnheader", class_=_class(title))
        for title, _ in rows[0][1]
    )
    return tag(
        "table",
        tag("caption", caption, class_="hidden"),
        tag("thead", tag("tr", titles, role="row"), role="rowgroup"),
        tag("tbody", joined(_row(key, cells) for key, cells in rows), role="rowgroup"),
        role="table",
        class_=kind,
    )


def _row(key: str, cells: Cells) -> Markup:
    content = joined(
        tag("td", cell, role="cell", class_=_class(title), data_title=title)
        for title, cell in cells
    )
    return tag("tr", content, role="row", data_key=key)


def _class(title: str) -> str:
    return title.lower().replace(" ", "-")


def _more(count: int, pool_type: str) -> Markup:
    """How many aren't shown, and what shows them."""
    if count <= 0:
        return Markup()
    command = tag("code", f"leasectl status -t {pool_type}")
    return tag("p", f"and {count} more: ", command, class_="more")


def _note(text: str, meaning: str) -> Markup:
    return tag("span", text, class_="note", title=meaning)


def _short(name: str, pool_type: str) -> str:
    """A resource's name without its pool's type: ``--00`` of ``<type>--00``."""
    begin = f"{pool_type}--"
    return name[len(pool_type) :] if name.startswith(begin) and len(name) > len(begin) else name


def _without_type(handle: str, pool_type: str) -> str:
    begin = f"{pool_type}-"
    return handle[len(begin) :] if handle.startswith(begin) else handle


def _text(text: str) -> str:
    return printable(text, longest=_LONGEST_TEXT)


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
        *(pool.type, pool.capacity, pool.held, pool.unavailable, len(pool.queue)),
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
    """The rough end of a lease that is renewed elsewhere; it changes with each renewal."""
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
        facts.append(f"default pool, quarantine {format_duration(pool.default_grace_seconds)}")
    next_grant = _next_grant(pool, at, now)
    if next_grant:
        facts.append(joined(("next grant ", next_grant)))
    return facts


def _next_grant(pool: ShownPool, at: float, now: float) -> Markup:
    """When the pool's pace allows the next grant; nothing when it does so now."""
    if pool.next_grant_in_seconds <= 0:
        return Markup()
    return until(at + pool.next_grant_in_seconds, now)


def sections_of_counts(counts: Counts) -> tuple[Section, ...]:
    """What there is to show.

    Args:
        counts: As they are now.
    """
    return (
        Section("pools", counts.types, lambda now: _counts_summary(counts)),
        *(_type_section(each) for each in counts.types),
    )


def totals_of_counts(counts: Counts) -> str:
    """All types in a few words, for the title of a tab."""
    types = counts.types
    return in_words(
        sum(each.held for each in types),
        sum(each.capacity for each in types),
        sum(each.waiting for each in types),
    )


def _counts_summary(counts: Counts) -> Markup:
    rows = [(each.type, _summary_cells(each)) for each in counts.types]
    none = f"Nothing was leased from {counts.backend} by this server yet."
    table = table_of("pools", "", "Pools", rows, len(rows)) or tag("p", none)
    return tag("section", table, id="pools", aria_label="Pools")


def _summary_cells(each: CountedType) -> Cells:
    others = each.capacity - each.held - each.free
    return (
        ("Pool", tag("a", each.type, href=f"#pool-{each.type}")),
        ("Held", f"{each.held} of {each.capacity}"),
        ("Free", str(each.free) + (f", {others} neither" if others else "")),
        ("Waiting here", str(each.waiting)),
    )


def _type_section(each: CountedType) -> Section:
    return Section(f"pool-{each.type}", each, lambda now: _written(each, now))


def _written(each: CountedType, now: float) -> Markup:
    states = ", ".join(f"{number} {state}" for state, number in each.states.items())
    owners = [(one.owner, _owner_cells(one, now)) for one in each.owners[:MOST_ROWS]]
    lost = [(f"{one.name}/{one.at}", _lost_cells(one, now)) for one in each.lost[:MOST_ROWS]]
    return tag(
        "section",
        tag("h2", each.type, id=f"name-{each.type}"),
        tag("p", f"{_text(states)} · {each.waiting} waiting here", class_="facts"),
        tag("h3", f"Held ({each.held})"),
        table_of("held", each.type, f"Holders of {each.type}", owners, len(each.owners))
        or tag("p", "Nothing is held."),
        tag("h3", f"Lost within a day ({len(each.lost)})") if lost else None,
        table_of("lost", each.type, f"Lost leases of {each.type}", lost, len(each.lost)),
        id=f"pool-{each.type}",
        aria_labelledby=f"name-{each.type}",
    )


def _owner_cells(owner: CountedOwner, now: float) -> Cells:
    elsewhere: Content = "—"
    return (
        ("Holder", _text(as_given(owner.owner))),
        ("Holds", str(owner.number)),
        ("Names", " ".join(owner.names) or elsewhere),
        ("Held for", elsewhere if owner.since is None else since(owner.since, now)),
    )


def _lost_cells(loss: CountedLoss, now: float) -> Cells:
    return (
        ("Resource", loss.name),
        ("Holder", _text(as_given(loss.holder_identity))),
        ("Lost", since(loss.at, now)),
    )
