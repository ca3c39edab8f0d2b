"""`status` of a backend without pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leasectl.cli.rendering.output import note, show, show_json
from leasectl.cli.rendering.status_watch import show_again
from leasectl.cli.rendering.table import Column, output_width, table
from leasectl.cli.rendering.waiting import pause
from leasectl.leases.held_here import HeldHere, encode_held_here, held_here
from leasectl.leases.service import Service
from leasectl.pools.counted import CountedType, Counts, count
from leasectl.pools.overview_json import encode_counts, parse_counts
from leasectl.system.clock import rfc3339
from leasectl.system.poll import Interrupt
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given
from leasectl.text.wording import counted, printable, printable_url

if TYPE_CHECKING:
    from leasectl.cli.rendering.status_watch import Shown


def show_looked(
    look: Callable[[Sequence[Interrupt]], Shown],
    *,
    refresh_seconds: float,
    watch: bool,
    as_json: bool,
) -> None:
    """Show a status; what can't be seen is a note.

    Args:
        look: Returns the status; the interrupts that it is given end it sooner.
        refresh_seconds: How long until the next look.
        watch: Repeat it, until a signal comes or stdout has no reader any more.
        as_json: As JSON.

    Raises:
        LeaseError: The status can't be read.
    """
    if watch:
        show_again(look, lambda ends: pause(refresh_seconds, ends), as_json=as_json)
        return
    shown = look(())
    if as_json:
        show_json(shown.encoded())
    elif shown.facts:
        show(shown.text())
    else:
        note(shown.text().rstrip())


_COUNT_COLUMNS = (
    Column("OWNER", shrinks=1, at_least=20),
    Column("HELD", right=True),
    Column("NAMES", shrinks=2),
)

# A server that only counts goes through all that it has each time that it is asked.
_REFRESH_COUNTS_SECONDS = 5.0

_Look = Callable[[Sequence[Interrupt]], Counts]


class _ShownCounts:
    """Types that were counted, as a `Shown`."""

    def __init__(self, counts: Counts) -> None:
        self.facts = counts.types
        self.at = counts.at
        self._counts = counts

    def text(self) -> str:
        return "".join(map(_text, self.facts)) or f"{_nothing_known(self._counts.backend)}\n"

    def encoded(self) -> object:
        return encode_counts(self._counts)


def show_counts(service: Service, pool_type: str | None, *, watch: bool, as_json: bool) -> None:
    """Show a type, or all that are known here.

    Args:
        service: On a backend that counts.
        pool_type: The type; None for all.
        watch: Repeat it, until a signal comes or stdout has no reader any more.
        as_json: As JSON.

    Raises:
        LeaseError: The counts can't be read.
    """
    _show(lambda ends: count(service, pool_type, interrupts=ends), watch=watch, as_json=as_json)


def show_counts_behind(
    service: Service, told: object, pool_type: str | None, *, watch: bool, as_json: bool
) -> None:
    """Show what the server behind another one counts, like `show_counts`.

    Args:
        service: On the backend that has sent the counts.
        told: The first counts.
        pool_type: The requested type; None for all.
        watch: See `show_counts`.
        as_json: As JSON.
    """
    url, first = service.backend_url, [told]

    def look(_: Sequence[Interrupt]) -> Counts:
        now = first.pop() if first else service.kind.status(service.context, pool_type)
        return parse_counts(now, backend=url)

    _show(look, watch=watch, as_json=as_json)


def _show(look: _Look, *, watch: bool, as_json: bool) -> None:
    show_looked(
        lambda ends: _ShownCounts(look(ends)),
        refresh_seconds=_REFRESH_COUNTS_SECONDS,
        watch=watch,
        as_json=as_json,
    )


def _nothing_known(url: str) -> str:
    return (
        f"Boskos can't list its pools, and this state directory has leased nothing from {url} yet; "
        "name a pool: leasectl status POOL"
    )


def _text(each: CountedType) -> str:
    states = [f"{number} {printable(state)}" for state, number in each.states.items()]
    waiting = [f"{each.waiting} waiting here"] if each.waiting else []
    rows: Sequence[Sequence[str]] = [
        (as_given(owner.owner), str(owner.number), " ".join(owner.names)) for owner in each.owners
    ]
    head = f"{each.type}: {counted(each.capacity, 'resource')}, {', '.join(states + waiting)}\n"
    lost = "".join(
        f"  {loss.name} was lost at {rfc3339(loss.at)}, by "
        f"{as_given(loss.holder_identity, longest=60)}\n"
        for loss in each.lost
    )
    return (
        head
        + (table(_COUNT_COLUMNS, rows, output_width(), indent="  ").text if rows else "")
        + lost
    )


_HANDLE_COLUMNS = (
    Column("HANDLE", shrinks=1, at_least=12),
    Column("NAMES", shrinks=2, at_least=253),
    Column("HELD FOR", right=True),
    Column("ENDS", goes=1),
    Column("GUARD", right=True, goes=2),
)
_NOTHING = "-"
_REFRESH_SECONDS = 2.0


class _ShownHandles:
    """Handles, as a `Shown`."""

    def __init__(self, service: Service, pool_type: str | None) -> None:
        self.at = service.clock.wall()
        self.facts = held_here(service, pool_type)
        self._url = service.backend_url

    def text(self) -> str:
        url = printable_url(self._url)
        if not self.facts:
            return f"{url} tells nobody what it has, and nothing is held there from here\n"
        rows = [self._row(each) for each in self.facts]
        head = f"{url} tells nobody what it has; what is held there from here:\n"
        return head + table(_HANDLE_COLUMNS, rows, output_width(), indent="  ").text

    def _row(self, each: HeldHere) -> list[str]:
        names = " ".join(each.names) or ("waiting" if each.state == "acquiring" else _NOTHING)
        ends = _NOTHING
        if each.release_time is not None:
            ends = f"in {format_duration(max(0, round(each.release_time - self.at)))}"
        since = _NOTHING if each.since is None else format_duration(round(self.at - each.since))
        guard = _NOTHING if each.guard_pid is None else str(each.guard_pid)
        return [each.handle, names, since, ends, guard]

    def encoded(self) -> object:
        return encode_held_here(self.facts, backend=self._url, at=self.at)


def show_handles(service: Service, pool_type: str | None, *, watch: bool, as_json: bool) -> None:
    """Show what handles here hold, of one type or of all.

    Args:
        service: On a backend that doesn't tell.
        pool_type: The one type; None for all.
        watch: Repeat it, until a signal comes or stdout has no reader any more.
        as_json: As JSON.
    """
    show_looked(
        lambda ends: _ShownHandles(service, pool_type),
        refresh_seconds=_REFRESH_SECONDS,
        watch=watch,
        as_json=as_json,
    )
