"""What `events` and `stats` print."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from leasectl.cli.rendering.status_columns import Look
from leasectl.cli.rendering.table import (
    FAINT,
    GREEN,
    RED,
    YELLOW,
    Column,
    number,
    painted,
    table,
    yellow_if_any,
)
from leasectl.engines.rules.events import how_ended
from leasectl.pools.statistics import Spread, Statistics
from leasectl.state.event import Event, EventKind
from leasectl.text.durations import format_seconds
from leasectl.text.naming import as_given, is_reserved, short_name, work_title
from leasectl.text.wording import cells, counted, listed, pad, printable, wrap

DATE = "%Y-%m-%dT%H:%M:%SZ"
WHEN_RECORDED = "they are recorded when a lease is acquired or released, or a pool changes"
NO_EVENTS_OF_DRY_RUN = "a dry run leases nothing, so there are no events"
_LONGEST_REASON = 500
_INDENT = " " * 4
_KIND_WIDTH = max(map(len, get_args(EventKind)))
_COLOURS: dict[EventKind, str] = {
    "granted": GREEN,
    "lost": RED,
    "gave up": YELLOW,
    "not released": YELLOW,
    "queued": FAINT,
}


class EventLines:
    """Writes events as lines, in columns that widen as they have to.

    Args:
        width: How wide a line may be; None for any width, and then names are whole.
        colour: Use colours.
    """

    def __init__(self, width: int | None, *, colour: bool) -> None:
        self._width = width
        self._colour = colour
        self._type_width = 0

    def text(self, events: Sequence[Event]) -> str:
        """A line each; where it is too long for a terminal, it goes on below, further in."""
        widths = [cells(_subject(each)) for each in events]
        self._type_width = max([self._type_width, *widths])
        return "".join(f"{self._line(each)}\n" for each in events)

    def _line(self, event: Event) -> str:
        at = time.strftime(DATE, time.gmtime(event.time))
        kind = pad(printable(event.kind), _KIND_WIDTH)
        pool = pad(_subject(event), self._type_width)
        whole = f"{at}  {kind}  {pool}  {self._said(event)}".rstrip()
        line = "\n".join(wrap(whole, self._width, indent=_INDENT))
        colour = _COLOURS.get(event.kind) if self._colour else None
        return line.replace(kind, painted(kind, colour), 1) if colour else line

    def _said(self, event: Event) -> str:
        said = _SAID.get(event.kind, _of_pool)(event, self._names(event))
        reason = printable(event.reason, longest=_LONGEST_REASON)
        return f"{said}: {reason}" if said and reason else said or reason

    def _names(self, event: Event) -> str:
        if self._width is None:
            return ",".join(map(printable, event.names))
        return listed([printable(short_name(name, event.type)) for name in event.names])


def _subject(event: Event) -> str:
    """Name what an event is about: a pool, or a work with its inputs."""
    if not is_reserved(event.type) or not event.names:
        return printable(event.type, longest=200)
    key, *inputs = map(as_given, event.names)
    return work_title(key, ", ".join(inputs))


def _of_work(event: Event, _: str) -> str:
    return f"{_after(event.hold_seconds)} by {_who(event)}".strip()


def _queued(event: Event, names: str) -> str:
    what = names or counted(event.count, "resource")
    priority = f" with priority {event.priority}" if event.priority else ""
    return f"for {what}{priority}, {_who(event)}"


def _granted(event: Event, names: str) -> str:
    return f"{names or 'nothing'}{_after(event.wait_seconds)} to {_who(event)}"


def _gave_up(event: Event, names: str) -> str:
    what = f"on {names}" if names else ""
    return f"{what}{_after(event.wait_seconds)}, {_who(event)}".strip(" ,")


def _ended(event: Event, names: str) -> str:
    how = printable(how_ended(event.by))
    return f"{names or 'nothing'}{_after(event.hold_seconds)} {how}, {_who(event)}"


def _noted(event: Event, names: str) -> str:
    return f"{names or 'nothing'} of {_who(event)}"


def _of_pool(event: Event, names: str) -> str:
    shown = names if event.kind != "pool made" else ""
    by = f"by {_who(event)}" if event.holder_identity else ""
    return " ".join(each for each in (shown, by) if each)


_SAID: dict[str, Callable[[Event, str], str]] = {
    "queued": _queued,
    "granted": _granted,
    "gave up": _gave_up,
    "released": _ended,
    "not released": _ended,
    "lost": _ended,
    "noted": _noted,
    "work begun": _of_work,
    "work done": _of_work,
    "work failed": _of_work,
    "work forgotten": _of_work,
}


def _after(seconds: float | None) -> str:
    return "" if seconds is None else f" after {format_seconds(max(0.0, seconds))}"


def _who(event: Event) -> str:
    return as_given(event.holder_identity, longest=300) or "an unknown holder"


UNKNOWN = "-"
_POOL = Column("POOL", shrinks=1, at_least=8)
_NO_SPREAD = (UNKNOWN,) * 3


def statistics_tables(found: Mapping[str, Statistics], look: Look) -> str:
    """One line a pool in each of two tables: how often, and how long."""
    names = {pool_type: printable(pool_type, longest=200) for pool_type in found}
    numbers = table(
        (
            _POOL,
            number("GRANTS"),
            number("PEAK/MIN"),
            number("UTILISATION"),
            number("GAVE UP", colour=yellow_if_any),
            number("LOST", colour=yellow_if_any),
            number("TAKEN BACK", colour=yellow_if_any),
        ),
        [
            (
                names[pool_type],
                str(each.grants),
                str(each.peak_starts),
                share(each.utilisation),
                str(each.gave_up),
                str(each.lost),
                str(each.taken_back),
            )
            for pool_type, each in found.items()
        ],
        look.room,
        colour=look.colour,
    )
    durations = table(
        (
            _POOL,
            *map(number, ("WAIT P50", "P95", "MAX")),
            *map(number, ("HOLD P50", "P95", "MAX")),
            number("ADVISED PACE", goes=1),
        ),
        [
            (
                names[pool_type],
                *spread_cells(each.wait),
                *spread_cells(each.hold),
                _advice(each),
            )
            for pool_type, each in found.items()
        ],
        look.room,
        colour=look.colour,
    )
    return f"{numbers.text}\n{durations.text}"


def spread_cells(spread: Spread | None) -> tuple[str, ...]:
    """The cells of p50, p95 and max."""
    return _NO_SPREAD if spread is None else tuple(map(format_seconds, spread))


def _advice(found: Statistics) -> str:
    pace = found.advised_pace_seconds
    return UNKNOWN if pace is None else f"{format_seconds(pace)} (of {found.holds})"


def share(of_one: float | None) -> str:
    """A cell with a share."""
    return UNKNOWN if of_one is None else f"{of_one:.0%}"


def stretch(since: float, until: float) -> str:
    """A stretch of time: ``2026-11-15 09:00 to 2026-11-22 09:00 UTC``."""
    form = "%Y-%m-%d %H:%M" if until - since >= 60 else "%Y-%m-%d %H:%M:%S"
    begin, end = (time.strftime(form, time.gmtime(at)) for at in (since, until))
    return f"{begin} to {end} UTC"
