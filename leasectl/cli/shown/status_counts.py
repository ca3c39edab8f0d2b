"""``leasectl status`` where a server only counts: how many are in which state, and whose."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.opening import ask_status
from leasectl.cli.shown.status_looks import show_looked
from leasectl.cli.shown.table import Column, table
from leasectl.cli.shown.terminal import output_width
from leasectl.leases.service import Service
from leasectl.pools.counted import CountedType, Counts, count
from leasectl.pools.counted_json import encode_counts, parse_counts
from leasectl.system.clock import rfc3339
from leasectl.system.poll import Interrupt
from leasectl.text.printable import printable
from leasectl.text.wording import counted
from leasectl.typed.hints import Callable

_COLUMNS = (
    Column("OWNER", shrinks=1, at_least=20),
    Column("HELD", right=True),
    Column("NAMES", shrinks=2),
)

# A server that only counts goes through all that it has each time that it is asked.
_REFRESH_SECONDS = 5.0

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
        pool_type: The one; None for all.
        watch: Again and again, until a signal comes or nobody reads it any more.
        as_json: As JSON.

    Raises:
        LeaseError: It can't be told.
    """
    _show(lambda ends: count(service, pool_type, interrupts=ends), watch=watch, as_json=as_json)


def show_counts_behind(
    service: Service, told: object, pool_type: str | None, *, watch: bool, as_json: bool
) -> None:
    """Show what the server behind another one counts; as `show_counts`.

    Args:
        service: On the backend that has told it.
        told: What it told first.
        pool_type: As it was asked for.
        watch: As `show_counts`.
        as_json: Likewise.
    """
    url, first = service.backend_url, [told]

    def look(_: Sequence[Interrupt]) -> Counts:
        settings, clock = service.settings, service.clock
        now = first.pop() if first else ask_status(url, settings, pool_type=pool_type, clock=clock)
        return parse_counts(now, backend=url)

    _show(look, watch=watch, as_json=as_json)


def _show(look: _Look, *, watch: bool, as_json: bool) -> None:
    show_looked(
        lambda ends: _ShownCounts(look(ends)),
        refresh_seconds=_REFRESH_SECONDS,
        watch=watch,
        as_json=as_json,
    )


def _nothing_known(url: str) -> str:
    return (
        f"nothing here has leased anything from {url} yet, and it doesn't say which types it has; "
        "name one: leasectl status TYPE"
    )


def _text(each: CountedType) -> str:
    states = [f"{number} {printable(state)}" for state, number in each.states.items()]
    waiting = [f"{each.waiting} waiting here"] if each.waiting else []
    rows: Sequence[Sequence[str]] = [
        (printable(owner.owner, longest=1000), str(owner.number), " ".join(owner.names))
        for owner in each.owners
    ]
    head = f"{each.type}: {counted(each.capacity, 'resource')}, {', '.join(states + waiting)}\n"
    lost = "".join(
        f"  {loss.name} was lost at {rfc3339(loss.at)}, by {printable(loss.holder_identity)}\n"
        for loss in each.lost
    )
    return head + (table(_COLUMNS, rows, output_width(), indent="  ").text if rows else "") + lost
