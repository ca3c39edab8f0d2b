"""The table of `status`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from leasectl.cli.completion_values import known_names
from leasectl.cli.rendering.output import note
from leasectl.cli.rendering.table import (
    BOLD,
    FAINT,
    GREEN,
    YELLOW,
    Colour,
    Column,
    Table,
    number,
    output_width,
    painted,
    shows_colour,
    table,
    yellow_if_any,
)
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.model import Labels
from leasectl.pools.circular_waits import circular_waits
from leasectl.pools.overview import (
    CORDONED,
    HELD_BACK,
    Holder,
    Overview,
    ShownLease,
    ShownPool,
    ShownResource,
    ShownWaiter,
    by_number,
    what_is_noted,
    why_unavailable,
    work_of_pool,
)
from leasectl.pools.settings import describe, pace_text
from leasectl.state.rows import SERVED_KEY_LABEL
from leasectl.text.durations import format_duration, format_seconds
from leasectl.text.naming import OWN_LABELS, short_handle, short_name, work_title
from leasectl.text.properties import described, written
from leasectl.text.wording import NO_POOLS, Cut, cells, printable, shorten

Item = TypeVar("Item")
NOTHING = "-"
_FREE = "free"
# Names are for copying: all else is cut before they are.
NAME_AT_LEAST = 253


class Facts(NamedTuple):
    """What a column shows: its title, and the texts of its cells, top to bottom."""

    column: Column
    texts: tuple[str, ...]

    @classmethod
    def of(cls, column: Column, items: Iterable[Item], read: Callable[[Item], str]) -> Facts:
        """Read the text of a cell of each item."""
        return cls(column, tuple(map(read, items)))


class Wording(NamedTuple):
    """How facts are worded.

    Args:
        pool_type: The pool that all is shown under.
        at: When it was seen, wall clock, seconds since the epoch.
        full: Names are whole; else what they begin with, the type, is left out.
    """

    pool_type: str
    at: float
    full: bool

    def name(self, name: str) -> str:
        """Return a resource's name, whole or short."""
        return name if self.full else short_name(name, self.pool_type)

    def handle(self, handle: str) -> str:
        """Return a handle's id, whole or short."""
        return handle if self.full else short_handle(handle, self.pool_type)

    def since(self, earlier: float) -> str:
        """How long ago a time was."""
        return _between(earlier, self.at)

    def ends_of(self, resource: ShownResource) -> str:
        """When a resource that is held, or held back, can be had again."""
        if resource.lease is not None:
            return self.ends(resource.lease)
        left = resource.membership.held_back_seconds
        return "" if left is None else f"in {format_duration(max(0.0, left))}"

    def ends(self, shown: ShownLease) -> str:
        """When a lease ends, by itself or by a release; what comes first is all that is short."""
        if shown.ended is not None:
            return self._ended(shown, shown.ended)
        parts = []
        left = shown.expires_in_seconds
        if left is not None:
            parts.append(self._expires(shown, max(0.0, left)))
        elif shown.renewed_by == "nobody":
            parts.append(f"not renewed for {self.since(shown.lease.renew_time)}")
        if shown.release_time is not None:
            due = release_due(shown.release_time, self.at)
            expires_before = (
                left is not None and not shown.renewed_by and self.at + left < shown.release_time
            )
            parts.insert(int(expires_before), f"{due} (release)" if self.full else due)
        return ", ".join(parts[: None if self.full else 1]) or NOTHING

    def held_for(self, resource: ShownResource) -> str:
        """For how long it is held, or why it isn't."""
        if resource.lease is not None:
            return self.since(resource.lease.lease.acquire_time)
        return why_unavailable(resource) or _FREE

    def notes(self, resource: ShownResource) -> str:
        """What becomes of a resource, or of its lease, beside what times tell."""
        return ", ".join(what_is_noted(resource, full=self.full))

    def _ended(self, shown: ShownLease, why: str) -> str:
        left = shown.expires_in_seconds
        at_latest = "" if left is None else f", in {format_duration(max(0.0, left))}"
        what = printable(why, longest=500) if self.full else "by force"
        return f"{what}{at_latest}"

    def _expires(self, shown: ShownLease, left_seconds: float) -> str:
        ttl_seconds = shown.lease.lease_duration_seconds or 0.0
        left, ttl = format_duration(left_seconds), format_duration(ttl_seconds)
        if shown.renewed_by in ("run", "keeper"):
            # A time that is always a few seconds away, and never comes, would mislead.
            return f"renewed by {shown.renewed_by} (ttl {ttl})" if self.full else "renewed"
        if self.full:
            # Its holder may renew it, and somebody elsewhere, who can't be seen from here.
            return f"in {left} unless renewed"
        is_overdue = left_seconds < ttl_seconds / 3  # for whoever renews all the time
        return f"in {left}" if shown.renewed_by or is_overdue else f"ttl {ttl}"


def resource_facts(resources: Sequence[ShownResource], wording: Wording) -> list[Facts]:
    """The columns of resources, held or free."""

    notes = Facts.of(_NOTES, resources, wording.notes)
    properties = Facts.of(_PROPERTIES, resources, lambda each: described(each.properties))
    leases = [each.lease for each in resources]
    job, build, *others = _holder_facts([each and each.holder for each in leases], wording)
    return [
        Facts.of(_RESOURCE, resources, lambda each: wording.name(each.name)),
        job,
        build,
        Facts.of(_HELD_FOR, resources, wording.held_for),
        Facts.of(_ENDS, resources, wording.ends_of),
        *_if_any(notes),
        *_if_any(properties),
        *others,
        Facts.of(_GUARD, leases, lambda lease: _guard(lease) if lease else ""),
        Facts.of(_LABELS, leases, lambda lease: _labels(lease.lease.labels) if lease else ""),
    ]


def waiter_facts(waiters: Sequence[ShownWaiter], wording: Wording) -> list[Facts]:
    """The columns of a queue."""
    priorities = Facts.of(_PRIORITY, waiters, _priority_text)
    wheres = Facts.of(_WHERE, waiters, lambda each: _shown(" ".join(written(each.where))))
    job, build, *others = _holder_facts([each.holder for each in waiters], wording)
    return [
        Facts.of(_POSITION, waiters, _position_text),
        job,
        build,
        Facts.of(_WAITED, waiters, lambda each: wording.since(each.since)),
        *([priorities] if set(priorities.texts) != {"0"} else []),
        Facts.of(
            _ASKS_FOR,
            waiters,
            lambda each: wording.name(each.name) if each.name else str(each.count),
        ),
        *_if_any(wheres),
        *others,
        Facts.of(_PID, waiters, lambda each: NOTHING if each.pid is None else str(each.pid)),
        Facts.of(_LABELS, waiters, lambda each: _labels(each.labels)),
    ]


def _holder_facts(holders: Sequence[Holder | None], wording: Wording) -> list[Facts]:
    def facts(column: Column, read: Callable[[Holder], str | None]) -> Facts:
        told = [read(each) or NOTHING if each else "" for each in holders]
        shown = {text: _shown(text) for text in set(told)}  # of thousands many are of one job
        return Facts(column, tuple([shown[text] for text in told]))

    return [
        facts(JOB, lambda holder: holder.job or holder.owner),
        facts(BUILD, lambda holder: holder.build),
        facts(_HANDLE, lambda holder: wording.handle(holder.handle)),
        facts(HOST, lambda holder: holder.host),
    ]


def _if_any(facts: Facts) -> list[Facts]:
    """A column that few pools have anything for."""
    return [facts] if any(facts.texts) else []


def _position_text(waiter: ShownWaiter) -> str:
    return f"{waiter.position} suspended" if waiter.suspended else str(waiter.position)


def _priority_text(waiter: ShownWaiter) -> str:
    asked, now = waiter.priority, waiter.effective_priority
    return str(asked) if now == asked else f"{asked}, now {now}"


def _guard(shown: ShownLease) -> str:
    if shown.unconfirmed:
        return "unconfirmed"
    if shown.guard == "none":
        return "unguarded"
    if shown.guard == "here":
        return f"pid {shown.guard_pid}"
    pid = shown.pid if shown.guard_pid is None else shown.guard_pid
    return "elsewhere" if pid is None else f"pid {pid} elsewhere"


def _labels(labels: Labels) -> str:
    """Labels that somebody gave; those of our own are in the JSON."""
    own = (OWN_LABELS, SERVED_KEY_LABEL)
    return " ".join(_shown(f"{key}={value}") for key, value in labels if not key.startswith(own))


def _shown(text: str) -> str:
    return printable(text, longest=1000)


def release_due(release_time: float, now: float) -> str:
    """Return ``in 4s``; ``due 4s ago`` for a release that fails, as on a full disk."""
    left = release_time - now
    return (
        f"in {_between(now, release_time)}"
        if left > -1
        else f"due {_between(release_time, now)} ago"
    )


def _between(earlier: float, later: float) -> str:
    return format_duration(max(0.0, later - earlier))


def _colour_of_free(text: str) -> Colour | None:
    return GREEN if text == _FREE else YELLOW if text in (CORDONED, HELD_BACK) else None


def _colour_of_guard(text: str) -> Colour | None:
    return YELLOW if text in ("unguarded", "unconfirmed") else None


_RESOURCE = Column("RESOURCE", shrinks=7, at_least=NAME_AT_LEAST)
_HELD_FOR = number("HELD FOR", colour=_colour_of_free)
_ENDS = Column("ENDS", shrinks=6, at_least=8, cut="end")
_NOTES = Column("NOTES", shrinks=4, at_least=10, cut="end", goes=7)
_PROPERTIES = Column("PROPERTIES", shrinks=2, at_least=12, cut="end", goes=6)
_POSITION = number("POSITION", colour=lambda text: None if text.isdecimal() else YELLOW)
_WAITED = number("WAITED")
_PRIORITY = number("PRIORITY")
_ASKS_FOR = Column("ASKS FOR", shrinks=7, at_least=NAME_AT_LEAST)
_WHERE = Column("WHERE", shrinks=6, at_least=12, cut="end", goes=6)
BUILD = Column("BUILD", shrinks=4, at_least=19, goes=6)
_HANDLE = Column("HANDLE", shrinks=5, at_least=12, goes=7)
HOST = Column("HOST", shrinks=3, at_least=14, goes=5)
_GUARD = Column("GUARD", shrinks=4, at_least=9, cut="end", goes=4, colour=_colour_of_guard)
_PID = Column("PID", goes=2)
JOB = Column("JOB", shrinks=2, at_least=24)
_LABELS = Column("LABELS", shrinks=1, at_least=12, cut="end", goes=1)


# Of a work, what would be the same in each line.
_SAME_IN_WORKS = ("RESOURCE", "ASKS FOR", "LABELS")
_INDENT = "  "
_MOST_VALUES = 4  # of a property in a pool
# Cells that the names of one lease may take: four short ones, or some full ones.
_WIDEST_NAMES, _WIDEST_FULL_NAMES = 19, 60


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


def pools_table(pools: Sequence[ShownPool], look: Look) -> str:
    """One line a pool, what its resources are included."""
    summary = _summary(pools, look, with_properties=True)
    return _hint(summary.left_out, look, "pool list") + summary.text


def _summary(pools: Sequence[ShownPool], look: Look, *, with_properties: bool = False) -> Table:
    columns = [
        Column("POOL", shrinks=2, at_least=NAME_AT_LEAST),
        number("CAPACITY"),
        number("FREE", colour=lambda text: None if text == "0" else GREEN),
        number("HELD"),
        number("WAITING", colour=yellow_if_any),
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

    if any(pool.unavailable for pool in pools):
        unavailable = number("UNAVAILABLE", goes=3, colour=yellow_if_any)
        add(unavailable, [str(pool.unavailable) for pool in pools])
    if any(pool.settings != NO_SETTINGS for pool in pools):
        settings = zip(*(_settings_texts(pool.settings) for pool in pools))
        for title, goes, texts in zip(("PACE", "BURST", "AGING"), (2, 1, 1), settings):
            add(number(title, goes=goes), texts)
    if any(pool.default_grace_seconds is not None for pool in pools):
        add(Column("DEFAULT", goes=2), list(map(_default_text, pools)))
    if with_properties and any(each.properties for pool in pools for each in pool.resources):
        properties = Column("PROPERTIES", shrinks=1, at_least=16, cut="end", goes=2)
        add(properties, list(map(_properties_text, pools)))
    return table(columns, rows, look.room, colour=look.colour)


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
    return described((key, _listed(found)) for key, found in sorted(values.items()))


def _listed(values: set[str]) -> str:
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
        section = _section(pool, overview, look)
        grants = _grants(pool, look, in_summary=not summary.left_out)
        if grants or section.text:
            is_named = len(overview.pools) == 1 and pool.type in summary.text
            heading = "" if is_named else _line(pool.type, look, BOLD)
            between = "\n" if grants and section.text else ""
            parts.append(f"\n{heading}{grants}{between}{section.text}")
            left_out.update(section.left_out)
    for pool in overview.works:
        work = f"work {work_title(*work_of_pool(pool))}".rstrip()
        section = _section(pool, overview, look, work=work)
        parts.append("\n" if parts else "")
        parts.append(f"{_line(work, look, BOLD)}{section.text}")
        left_out.update(section.left_out)
    return _hint(left_out, look, "status") + _circular(overview, look) + "".join(parts)


def _circular(overview: Overview, look: Look) -> str:
    lines = [_line(f"circular wait: {each}", look, YELLOW) for each in circular_waits(overview)]
    return "".join(lines) + "\n" if lines else ""


def _hint(left_out: Collection[str], look: Look, command: str) -> str:
    """Name the columns that were left out, and how to see them; nothing if none were."""
    if not left_out:
        return ""
    what = f"hidden columns: {', '.join(sorted(left_out))};"
    how = f"show all: leasectl {command} --wide"
    lines = [f"{what} {how}"]
    if look.room is not None and len(lines[0]) > look.room:
        from textwrap import wrap  # which only a narrow terminal needs

        lines = [*wrap(what, look.room), how]
    return "".join([_line(each, look, FAINT, cut="end") for each in lines]) + "\n"


def _grants(pool: ShownPool, look: Look, *, in_summary: bool) -> str:
    """When a pool grants next, and how it grants, unless the summary has said that."""
    told = [] if in_summary or pool.settings == NO_SETTINGS else [describe(pool.settings)]
    if pool.next_grant_in_seconds:
        told.append(f"next grant in {format_duration(math.ceil(pool.next_grant_in_seconds))}")
    return _line(f"{_INDENT}{'; '.join(told)}", look, cut="end") if told else ""


def _section(pool: ShownPool, overview: Overview, look: Look, *, work: str = "") -> Table:
    """The tables of a pool or a work: its holders and its queue."""
    resources, queue = overview.rows.resources(pool), overview.rows.queue(pool)
    shown = [each for each in resources if each.lease or each.is_unavailable or look.free]
    shown.sort(key=lambda each: by_number(each.name))
    for full in (True,) if look.wide else (True, False):  # short only where that isn't too wide
        wording = Wording(pool.type, overview.at, full=full)
        held, waiting = resource_facts(shown, wording), waiter_facts(queue, wording)
        if not look.wide:
            held = _one_line_a_lease(held, full=full)
        if work:  # there is nothing else to be had
            held, waiting = _without(held, _SAME_IN_WORKS), _without(waiting, _SAME_IN_WORKS)
        section = _tables(held, waiting, look)
        if section.is_whole:
            return section
    same = _same_for_all(held, waiting)
    lines = [_line(f"{_INDENT}{title}: {text} (all rows)", look) for title, text in same.items()]
    section = _tables(_without(held, same), _without(waiting, same), look)
    return section._replace(text="".join(lines) + section.text)


def _one_line_a_lease(facts: Sequence[Facts], *, full: bool) -> list[Facts]:
    """Put the resources of one lease into one line where they fit: ``--00,--01``."""
    widest_names = _WIDEST_FULL_NAMES if full else _WIDEST_NAMES
    names, others = facts[0].texts, list(zip(*(each.texts for each in facts[1:])))
    (handles,) = (each.texts for each in facts if each.column is _HANDLE)
    groups: list[list[int]] = []
    for n, row in enumerate(others):
        if groups and handles[n] and row == others[groups[-1][0]]:
            joined = ",".join(names[each] for each in (*groups[-1], n))
            if cells(joined) <= widest_names:
                groups[-1].append(n)
                continue
        groups.append([n])
    joined_names = tuple(",".join(names[n] for n in group) for group in groups)
    rest = [each._replace(texts=tuple(each.texts[g[0]] for g in groups)) for each in facts[1:]]
    return [facts[0]._replace(texts=joined_names), *rest]


def _tables(held: Sequence[Facts], queue: Sequence[Facts], look: Look) -> Table:
    found = [_facts_table(each, look) for each in (held, queue) if each[0].texts]
    return Table(
        "\n".join(each.text for each in found),
        tuple(title for each in found for title in each.left_out),
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


def note_no_pools(backend: str | None) -> None:
    """Say how to create a pool, unless resources are left in pools that were deleted by hand.

    The engine has warned of those already.

    Args:
        backend: The value of ``--backend``.
    """
    if not known_names(backend):
        note(NO_POOLS)
