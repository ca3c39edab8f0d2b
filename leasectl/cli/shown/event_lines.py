"""An event as a line for people: when, what, in which pool, which names, who, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from leasectl.cli.shown.table import FAINT, GREEN, RED, YELLOW, painted
from leasectl.state.event import Event, EventKind
from leasectl.text.durations import format_seconds
from leasectl.text.naming import is_reserved
from leasectl.text.printable import printable
from leasectl.text.width import cells, pad, wrap
from leasectl.text.wording import counted, listed
from leasectl.typed.hints import get_args

DATE = "%Y-%m-%dT%H:%M:%SZ"
NO_EVENTS_OF_DRY_RUN = "a dry run leases nothing, so there are no events"
_LONGEST_REASON = 500
_INDENT = " " * 4
_KIND_WIDTH = max(map(len, get_args(EventKind)))
_COLOURS: dict[EventKind, str] = {
    "granted": GREEN,
    "lost": RED,
    "gave up": YELLOW,
    "queued": FAINT,
}
_BY = {
    "command": "by a command",
    "delay": "by its delay",
    "guard": "as its process had ended",
    "run": "by its run",
    "ttl": "as its ttl was over",
    "force": "by force",
    "removal": "as it was taken out of the pool",
    "reclaim": "by a reclaim",
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
        begin = f"{event.type}--"
        return listed(
            [
                printable(name[len(event.type) :] if name.startswith(begin) else name)
                for name in event.names
            ]
        )


def _subject(event: Event) -> str:
    """What an event is about: a pool, or a work, which is known by its key."""
    is_of_work = is_reserved(event.type) and event.names
    return printable(event.names[0] if is_of_work else event.type, longest=200)


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
    by = _BY.get(event.by, f"by {printable(event.by)}")
    return f"{names or 'nothing'}{_after(event.hold_seconds)} {by}, {_who(event)}"


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
    return printable(event.holder_identity, longest=300) or "nobody known"
