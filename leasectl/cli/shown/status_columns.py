"""The columns of status: what each shows of a resource or of a waiter.

From left to right stands what tells holders apart; what a narrow terminal has no room for goes
from the right.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.shown.table import GREEN, YELLOW, Colour, Column
from leasectl.model import Labels
from leasectl.pools.membership_words import CORDONED, HELD_BACK, what_is_noted, why_closed
from leasectl.pools.shown import Holder, ShownLease, ShownResource, ShownWaiter
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable
from leasectl.text.properties import described, written
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

NOTHING = "-"
_FREE = "free"
# Names are for copying: all else is cut before they are.
NAME_AT_LEAST = 253


class Facts(NamedTuple):
    """What a column shows: its title, and the texts of its cells, top to bottom."""

    column: Column
    texts: tuple[str, ...]


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
        """A resource's name: ``--00`` of ``<type>--00``."""
        return self._without_type(name, "--", skipped=0)

    def handle(self, handle: str) -> str:
        """A handle's id: ``aB3xYz`` of ``<type>-aB3xYz``."""
        return self._without_type(handle, "-", skipped=1)

    def _without_type(self, text: str, separator: str, *, skipped: int) -> str:
        begin = f"{self.pool_type}{separator}"
        short = not self.full and text.startswith(begin) and len(text) > len(begin)
        return text[len(self.pool_type) + skipped :] if short else text

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
        if shown.release_time is not None:
            left = _between(self.at, shown.release_time)
            parts.append(f"in {left} (release)" if self.full else f"in {left}")
        if shown.expires_in_seconds is not None:
            parts.append(self._expires(shown, max(0.0, shown.expires_in_seconds)))
        return ", ".join(parts[: None if self.full else 1]) or NOTHING

    def held_for(self, resource: ShownResource) -> str:
        """For how long it is held, or why it isn't."""
        if resource.lease is not None:
            return self.since(resource.lease.lease.acquire_time)
        return why_closed(resource) or _FREE

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

    def facts(column: Column, read: Callable[[ShownLease], str]) -> Facts:
        return Facts(column, tuple(read(r.lease) if r.lease else "" for r in resources))

    def own_facts(column: Column, read: Callable[[ShownResource], str]) -> Facts:
        return Facts(column, tuple(map(read, resources)))

    notes, properties = own_facts(_NOTES, wording.notes), own_facts(_PROPERTIES, _properties)
    return [
        own_facts(_RESOURCE, lambda each: wording.name(each.name)),
        own_facts(_HELD_FOR, wording.held_for),
        own_facts(_ENDS, wording.ends_of),
        *_if_any(notes),
        *_if_any(properties),
        *_holder_facts(
            [each.lease.holder if each.lease else None for each in resources],
            wording,
            facts(_GUARD, _guard),
        ),
        facts(_LABELS, lambda shown: _labels(shown.lease.labels)),
    ]


def waiter_facts(waiters: Sequence[ShownWaiter], wording: Wording) -> list[Facts]:
    """The columns of a queue."""

    def facts(column: Column, read: Callable[[ShownWaiter], str]) -> Facts:
        return Facts(column, tuple(map(read, waiters)))

    priorities = facts(_PRIORITY, _priority_text)
    wheres = facts(_WHERE, lambda waiter: _shown(" ".join(written(waiter.where))))
    return [
        facts(_PLACE, _place_text),
        facts(_WAITED, lambda waiter: wording.since(waiter.since)),
        *([priorities] if set(priorities.texts) != {"0"} else []),
        facts(
            _ASKS_FOR,
            lambda waiter: wording.name(waiter.name) if waiter.name else str(waiter.count),
        ),
        *_if_any(wheres),
        *_holder_facts(
            [each.holder for each in waiters],
            wording,
            facts(_PID, lambda waiter: NOTHING if waiter.pid is None else str(waiter.pid)),
        ),
        facts(_LABELS, lambda waiter: _labels(waiter.labels)),
    ]


def _holder_facts(
    holders: Sequence[Holder | None], wording: Wording, process: Facts
) -> list[Facts]:
    def facts(column: Column, read: Callable[[Holder], str | None]) -> Facts:
        told = [read(each) or NOTHING if each else "" for each in holders]
        shown = {text: _shown(text) for text in set(told)}  # of thousands many are of one job
        return Facts(column, tuple([shown[text] for text in told]))

    return [
        facts(BUILD, lambda holder: holder.build),
        facts(_HANDLE, lambda holder: wording.handle(holder.handle)),
        facts(HOST, lambda holder: holder.host),
        process,
        facts(JOB, lambda holder: holder.job or holder.owner),
    ]


def _if_any(facts: Facts) -> list[Facts]:
    """A column that few pools have anything for."""
    return [facts] if any(facts.texts) else []


def _properties(resource: ShownResource) -> str:
    return described(resource.properties)


def _place_text(waiter: ShownWaiter) -> str:
    return f"{waiter.place} suspended" if waiter.suspended else str(waiter.place)


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
    return " ".join(_shown(f"{key}={value}") for key, value in labels)


def _shown(text: str) -> str:
    return printable(text, longest=1000)


def _between(earlier: float, later: float) -> str:
    return format_duration(max(0.0, later - earlier))


def _colour_of_free(text: str) -> Colour | None:
    return GREEN if text == _FREE else YELLOW if text in (CORDONED, HELD_BACK) else None


def _colour_of_guard(text: str) -> Colour | None:
    return YELLOW if text in ("unguarded", "unconfirmed") else None


_RESOURCE = Column("RESOURCE", shrinks=7, at_least=NAME_AT_LEAST)
_HELD_FOR = Column("HELD FOR", right=True, colour=_colour_of_free)
_ENDS = Column("ENDS", shrinks=6, at_least=8, cut="end")
_NOTES = Column("NOTES", shrinks=4, at_least=10, cut="end", goes=7)
_PROPERTIES = Column("PROPERTIES", shrinks=2, at_least=12, cut="end", goes=6)
_PLACE = Column("PLACE", right=True, colour=lambda text: None if text.isdecimal() else YELLOW)
_WAITED = Column("WAITED", right=True)
_PRIORITY = Column("PRIORITY", right=True)
_ASKS_FOR = Column("ASKS FOR", shrinks=7, at_least=NAME_AT_LEAST)
_WHERE = Column("WHERE", shrinks=6, at_least=12, cut="end", goes=6)
BUILD = Column("BUILD", shrinks=4, at_least=19)
_HANDLE = Column("HANDLE", shrinks=5, at_least=12)
HOST = Column("HOST", shrinks=3, at_least=14, goes=5)
_GUARD = Column("GUARD", shrinks=4, at_least=9, cut="end", goes=4, colour=_colour_of_guard)
_PID = Column("PID", goes=2)
JOB = Column("JOB", shrinks=2, at_least=24, goes=3)
_LABELS = Column("LABELS", shrinks=1, at_least=12, cut="end", goes=1)
