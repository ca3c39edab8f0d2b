"""The sections of the page where pools are another server's, which only counts."""

from __future__ import annotations

from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.server.page.markup import Content, Markup, tag
from leasectl.server.page.rows import MOST_ROWS, Cells, table_of
from leasectl.server.page.sections import Section, in_words
from leasectl.server.page.times import since
from leasectl.text.printable import printable

_LONGEST_TEXT = 300


def sections_of_counts(counts: Counts) -> tuple[Section, ...]:
    """What there is to show.

    Args:
        counts: As they are now.
    """
    return (
        Section("pools", counts.types, lambda now: _summary(counts)),
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


def _summary(counts: Counts) -> Markup:
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
        table_of("held", each.type, f"Who holds {each.type}", owners, len(each.owners))
        or tag("p", "Nothing is held."),
        tag("h3", f"Lost within a day ({len(each.lost)})") if lost else None,
        table_of("lost", each.type, f"Who has lost {each.type}", lost, len(each.lost)),
        id=f"pool-{each.type}",
        aria_labelledby=f"name-{each.type}",
    )


def _owner_cells(owner: CountedOwner, now: float) -> Cells:
    elsewhere: Content = "—"
    return (
        ("Holder", _text(owner.owner)),
        ("Holds", str(owner.number)),
        ("Names", " ".join(owner.names) or elsewhere),
        ("Held for", elsewhere if owner.since is None else since(owner.since, now)),
    )


def _lost_cells(loss: CountedLoss, now: float) -> Cells:
    return (
        ("Resource", loss.name),
        ("Holder", _text(loss.holder_identity)),
        ("Lost", since(loss.at, now)),
    )


def _text(text: str) -> str:
    return printable(text, longest=_LONGEST_TEXT)
