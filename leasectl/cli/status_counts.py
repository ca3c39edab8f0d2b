"""``leasectl status`` where the server only counts: how many are in which state, and whose."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.output import note, show, show_json
from leasectl.cli.table import Column, table
from leasectl.cli.terminal import output_width
from leasectl.leases.service import Service
from leasectl.pools.counted import CountedType, count, encode_counted
from leasectl.system.clock import rfc3339
from leasectl.system.poll import Interrupt
from leasectl.text.printable import printable
from leasectl.text.wording import counted

_COLUMNS = (
    Column("OWNER", shrinks=1, at_least=20),
    Column("HELD", right=True),
    Column("NAMES", shrinks=2),
)


# A server that only counts goes through all that it has each time that it is asked.
_REFRESH_SECONDS = 5.0


class _Counts:
    """Types that were counted, as a `Shown`."""

    def __init__(self, url: str, found: Sequence[CountedType], at: float) -> None:
        self.facts = tuple(found)
        self.at = at
        self._url = url

    def text(self) -> str:
        return "".join(map(_text, self.facts)) or f"{_nothing_known(self._url)}\n"

    def encoded(self) -> object:
        pools = [encode_counted(each) for each in self.facts]
        return {"backend": self._url, "at": rfc3339(self.at), "pools": pools}


def show_counts(service: Service, pool_type: str | None, *, as_json: bool) -> None:
    """Show a type, or all that are known here.

    Args:
        service: On a backend that counts.
        pool_type: The one; None for all.
        as_json: As JSON.

    Raises:
        LeaseError: It can't be told.
    """
    counts = _look(service, pool_type, ())
    if as_json:
        show_json(counts.encoded())
    elif counts.facts:
        show(counts.text())
    else:
        note(_nothing_known(service.backend_url))


def show_counts_again(service: Service, pool_type: str | None, *, as_json: bool) -> None:
    """Show it until a signal comes or nobody reads it any more; as `show_counts`."""
    from leasectl.cli.status_watch import show_again
    from leasectl.cli.waiting import pause

    show_again(
        lambda ends: _look(service, pool_type, ends),
        lambda ends: pause(_REFRESH_SECONDS, ends),
        as_json=as_json,
    )


def _look(service: Service, pool_type: str | None, ends: Sequence[Interrupt]) -> _Counts:
    found = count(service, pool_type, interrupts=ends)
    return _Counts(service.backend_url, found, service.clock.wall())


def _nothing_known(url: str) -> str:
    return (
        f"nothing here has leased anything from {url} yet, and it doesn't say which types it has; "
        "name one: leasectl status TYPE"
    )


def _text(each: CountedType) -> str:
    states = ", ".join(f"{number} {printable(state)}" for state, number in each.states.items())
    rows: Sequence[Sequence[str]] = [
        (
            printable(owner.owner, longest=1000),
            str(owner.number),
            "" if owner.handle is None else " ".join(owner.handle.names),
        )
        for owner in each.owners
    ]
    head = f"{each.type}: {counted(each.capacity, 'resource')}, {states}\n"
    return head + (table(_COLUMNS, rows, output_width(), indent="  ").text if rows else "")
