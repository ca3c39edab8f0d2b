"""Pools and who holds what, as tables for people."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from leasectl.cli.shown.status_columns import (
    BUILD,
    HOST,
    JOB,
    NAME_AT_LEAST,
    NOTHING,
    Facts,
    Wording,
    resource_facts,
    waiter_facts,
)
from leasectl.cli.shown.table import (
    BOLD,
    FAINT,
    GREEN,
    YELLOW,
    Colour,
    Column,
    Table,
    painted,
    table,
)
from leasectl.cli.shown.terminal import output_width, shows_colour
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.pools.settings import describe, pace_text
from leasectl.pools.shown import Overview, ShownPool, key_of_work
from leasectl.text.durations import format_duration, format_seconds
from leasectl.text.printable import printable
from leasectl.text.properties import described
from leasectl.text.width import Cut, shorten
from leasectl.typed.tuples import NamedTuple

# Of a work, what would be the same in each line.
_SAME_IN_WORKS = ("RESOURCE", "ASKS FOR", "LABELS")
_INDENT = "  "
_MOST_VALUES = 4  # of a property in a pool


class Look(NamedTuple):
    """What pools are to look like.

    Args:
        width: No line takes more cells than this; None for no limit.
        wide: Every column is there and nothing is cut, however long lines become.
        colour: With colours.
        free: Free resources are listed as well.
    """

    width: int | None = None
    wide: bool = True
    colour: bool = False
    free: bool = False

    @property
    def room(self) -> int | None:
        return None if self.wide else self.width


def look_of_stdout(*, wide: bool = False, free: bool = False) -> Look:
    """The look for whatever reads our stdout: people with a terminal, or programs."""
    width = output_width()
    return Look(width, wide or width is None, shows_colour(), free)


class _Section(NamedTuple):
    text: str
    left_out: frozenset[str] = frozenset()
    is_whole: bool = True


def pools_table(pools: Sequence[ShownPool], look: Look) -> str:
    """One line a pool, what its resources are included."""
    summary = _summary(pools, look, with_properties=True)
    return summary.text + _hint(summary.left_out, look, "pool list")


def _summary(pools: Sequence[ShownPool], look: Look, *, with_properties: bool = False) -> Table:
    columns = [
        Column("POOL", shrinks=2, at_least=NAME_AT_LEAST),
        Column("CAPACITY", right=True),
        Column("FREE", right=True, colour=lambda text: None if text == "0" else GREEN),
        Column("HELD", right=True),
        Column("WAITING", right=True, colour=_yellow_if_any),
    ]
    rows = [
        [
            printable(pool.type, longest=200),
            *map(str, (pool.capacity, pool.free, pool.held, len(pool.queue))),
        ]
        for pool in pools
    ]

    def add(column: Column, texts: Sequence[str]) -> None:
        columns.append(column)
        for row, text in zip(rows, texts):
            row.append(text)

    if any(pool.closed for pool in pools):
        closed = Column("CLOSED", right=True, goes=3, colour=_yellow_if_any)
        add(closed, [str(pool.closed) for pool in pools])
    if any(pool.settings != NO_SETTINGS for pool in pools):
        settings = zip(*(_settings_texts(pool.settings) for pool in pools))
        for title, goes, texts in zip(("PACE", "BURST", "AGING"), (2, 1, 1), settings):
            add(Column(title, right=True, goes=goes), texts)
    if any(pool.default_grace_seconds is not None for pool in pools):
        add(Column("DEFAULT", goes=2), list(map(_default_text, pools)))
    if with_properties and any(each.properties for pool in pools for each in pool.resources):
        properties = Column("PROPERTIES", shrinks=1, at_least=16, cut="end", goes=2)
        add(properties, list(map(_properties_text, pools)))
    return table(columns, rows, look.room, colour=look.colour)


def _yellow_if_any(text: str) -> Colour | None:
    return None if text == "0" else YELLOW


def _default_text(pool: ShownPool) -> str:
    seconds = pool.default_grace_seconds
    if seconds is None:
        return NOTHING
    return f"grace {format_seconds(seconds)}" if seconds else "yes"


def _properties_text(pool: ShownPool) -> str:
    """What there is in a pool: of each key the values that its resources have."""
    values: dict[str, set[str]] = {}
    for key, value in (pair for each in pool.resources for pair in each.properties):
        values.setdefault(key, set()).add(value)
    return described((key, _some_of(found)) for key, found in sorted(values.items()))


def _some_of(values: set[str]) -> str:
    more = ["…"] if len(values) > _MOST_VALUES else []
    return "|".join([*sorted(values)[:_MOST_VALUES], *more])


def _settings_texts(settings: PoolSettings) -> tuple[str, str, str]:
    paced, aged = bool(settings.pace_seconds), bool(settings.aging_seconds)
    return (
        pace_text(settings) if paced else NOTHING,
        str(settings.burst) if paced else NOTHING,
        format_seconds(settings.aging_seconds) if aged else NOTHING,
    )


def overview_text(overview: Overview, look: Look) -> str:
    """All of an overview, for people."""
    summary = _summary(overview.pools, look)
    parts = [summary.text] if overview.pools else []
    left_out: set[str] = set()
    for pool in overview.pools:
        section = _section(pool, overview.at, look)
        grants = _grants(pool, look, in_summary=not summary.left_out)
        if grants or section.text:
            is_named = len(overview.pools) == 1 and pool.type in summary.text
            heading = "" if is_named else _line(pool.type, look, BOLD)
            between = "\n" if grants and section.text else ""
            parts.append(f"\n{heading}{grants}{between}{section.text}")
            left_out |= section.left_out
    for pool in overview.works:
        work = f"work {key_of_work(pool)}".rstrip()
        section = _section(pool, overview.at, look, work=work)
        parts.append("\n" if parts else "")
        parts.append(f"{_line(work, look, BOLD)}{section.text}")
        left_out |= section.left_out
    return "".join(parts) + _hint(left_out, look, "status")


def _hint(left_out: Collection[str], look: Look, command: str) -> str:
    """What there was no room for, and how it is seen; nothing if that is nothing."""
    if not left_out:
        return ""
    what = f"no room for {', '.join(sorted(left_out))};"
    how = f"all of it: leasectl {command} --wide"
    lines = [f"{what} {how}"]
    if look.room is not None and len(lines[0]) > look.room:
        from textwrap import wrap  # which only a narrow terminal needs

        lines = [*wrap(what, look.room), how]
    return "\n" + "".join([_line(each, look, FAINT, cut="end") for each in lines])


def _grants(pool: ShownPool, look: Look, *, in_summary: bool) -> str:
    """When a pool grants next, and how it grants, unless the summary has said that."""
    told = [] if in_summary or pool.settings == NO_SETTINGS else [describe(pool.settings)]
    if pool.next_grant_in_seconds:
        told.append(f"next grant in {format_duration(math.ceil(pool.next_grant_in_seconds))}")
    return _line(f"{_INDENT}{'; '.join(told)}", look, cut="end") if told else ""


def _section(pool: ShownPool, at: float, look: Look, *, work: str = "") -> _Section:
    """Who holds what of a pool, and who waits for it; or who does a work, and who waits for it."""
    wording = Wording(work.replace("work ", "once-", 1) or pool.type, at, full=look.wide)
    shown = [each for each in pool.resources if each.lease or each.is_closed or look.free]
    shown.sort(key=lambda each: _by_number(each.name))
    held, queue = resource_facts(shown, wording), waiter_facts(pool.queue, wording)
    if work:  # there is nothing else to be had
        held, queue = _without(held, _SAME_IN_WORKS), _without(queue, _SAME_IN_WORKS)
    section = _tables(held, queue, look)
    if section.is_whole:
        return section
    same = _same_for_all(held, queue)
    lines = [_line(f"{_INDENT}{title} of all: {text}", look) for title, text in same.items()]
    section = _tables(_without(held, same), _without(queue, same), look)
    return section._replace(text="".join(lines) + section.text)


def _tables(held: Sequence[Facts], queue: Sequence[Facts], look: Look) -> _Section:
    found = [_facts_table(each, look) for each in (held, queue) if each[0].texts]
    return _Section(
        "\n".join(each.text for each in found),
        frozenset(title for each in found for title in each.left_out),
        all(each.is_whole for each in found),
    )


def _facts_table(facts: Sequence[Facts], look: Look) -> Table:
    if not look.wide:
        facts = [each for each in facts if set(each.texts) - {"", NOTHING}]
    columns, texts = [each.column for each in facts], [each.texts for each in facts]
    return table(columns, list(zip(*texts)), look.room, indent=_INDENT, colour=look.colour)


def _same_for_all(held: Sequence[Facts], queue: Sequence[Facts]) -> dict[str, str]:
    """What is the same for each of several who hold or wait, by the titles of its columns."""
    texts: dict[str, list[str]] = {column.title: [] for column in (JOB, BUILD, HOST)}
    for each in (*held, *queue):
        if each.column.title in texts:
            texts[each.column.title] += filter(None, each.texts)
    return {
        title: found[0]
        for title, found in texts.items()
        if len(found) > 1 and set(found) == {found[0]} and found[0] != NOTHING
    }


def _without(facts: Sequence[Facts], titles: Collection[str]) -> list[Facts]:
    return [each for each in facts if each.column.title not in titles]


def _line(text: str, look: Look, colour: Colour | None = None, *, cut: Cut = "middle") -> str:
    return painted(shorten(text, look.room, cut=cut), colour if look.colour else None) + "\n"


def _by_number(name: str) -> tuple[str, int, str]:
    """Order names as people count: ``--9`` before ``--10``."""
    stem, dashes, number = name.rpartition("--")
    return (stem, int(number), name) if dashes and number.isdecimal() else (name, -1, name)
