"""The tables of a pool: who holds what and until when, who waits, what is free."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.pools.membership_words import what_is_noted, why_closed
from leasectl.pools.shown import Holder, ShownLease, ShownResource, ShownWaiter
from leasectl.server.page.markup import Content, Markup, joined, tag
from leasectl.server.page.times import since, until
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable
from leasectl.text.properties import described, written

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
    return table_of("held", pool_type, f"Who holds {pool_type}", rows, len(held))


def queue_table(queue: Sequence[ShownWaiter], pool_type: str, now: float) -> Markup:
    """Who waits, in the order in which they will be served."""
    with_priority = any(each.priority or each.effective_priority for each in queue)
    rows = [_waiting_row(each, pool_type, now, with_priority) for each in queue[:MOST_ROWS]]
    return table_of("queue", pool_type, f"Who waits for {pool_type}", rows, len(queue))


def free_list(resources: Sequence[ShownResource], pool_type: str) -> Markup:
    """The names of what is free, to be opened; nothing where nothing is."""
    free = [each for each in resources if each.lease is None]
    if not free:
        return Markup()
    closed = sum(each.is_closed for each in free)
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
        ("Holder", joined((_holder(shown.holder, pool_type, _guard(shown)), notes))),
        ("Held for", since(shown.lease.acquire_time, now)),
        ("Ends", _ends(shown, now)),
    )
    return f"{pool_type}/{name}/{shown.lease.fence}/{shown.lease.acquire_time}", cells


def _name(name: str, pool_type: str) -> Markup:
    return tag("span", _short(name, pool_type), title=name, class_="name")


def _free(resource: ShownResource, pool_type: str) -> Markup:
    """A resource that nobody holds: why nobody gets it, and what it is."""
    why = why_closed(resource)
    closed = _note(why, "Nobody gets it, although it is free.") if why else None
    name = tag("bdi", _short(resource.name, pool_type))
    said = (name, closed, _membership(resource), _properties(resource))
    return joined(filter(None, said), " ")


def _properties(resource: ShownResource) -> Markup | None:
    """What a resource is, in small print below its name; nothing where nobody has said."""
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
    note = _note("suspended", "It could have claimed and doesn't run; those behind it may pass.")
    cells: list[tuple[str, Content]] = [
        ("Place", str(waiter.place)),
        ("Holder", joined((_holder(waiter.holder, pool_type), note if waiter.suspended else None))),
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


def _holder(holder: Holder, pool_type: str, guard: str = "") -> Markup:
    """Who it is: the job or user first, then what tells several of its own apart."""
    first = holder.job or holder.owner or holder.identity
    rest = [holder.build, holder.host, _without_type(holder.handle, pool_type), guard]
    lines = [tag("bdi", _text(first), class_="who")]
    more = joined((tag("bdi", _text(each)) for each in rest if each), " · ")
    if more:
        lines.append(tag("span", more, class_="where"))
    return tag("span", *lines, class_="holder", title=_text(holder.identity))


def _notes(shown: ShownLease) -> Markup:
    """What a person should know of a lease beside its times."""
    notes = []
    if shown.ended is not None:
        notes.append(_note(f"ended: {_text(shown.ended)}", "By force; kept for its holder so long"))
    if shown.unconfirmed:
        notes.append(_note("unconfirmed", "The server doesn't know that its client heard of it."))
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
