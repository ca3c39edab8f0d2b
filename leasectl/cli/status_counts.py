"""``leasectl status`` where the server only counts: how many are in which state, and whose."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.output import note, show, show_json
from leasectl.cli.table import Column, table
from leasectl.cli.terminal import output_width
from leasectl.errors import NotSupported
from leasectl.leases.service import Service
from leasectl.pools.counted import CountedType, count, encode_counted
from leasectl.system.clock import rfc3339
from leasectl.text.printable import printable
from leasectl.text.wording import counted

_COLUMNS = (
    Column("OWNER", shrinks=1, at_least=20),
    Column("HELD", right=True),
    Column("NAMES", shrinks=2),
)


def show_counts(service: Service, pool_type: str | None, *, watch: bool, as_json: bool) -> None:
    """Show a type, or all that are known here.

    Args:
        service: On a backend that counts.
        pool_type: The one; None for all.
        watch: Again and again, which there is another program for.
        as_json: As JSON.

    Raises:
        NotSupported: It is to be shown again and again.
        LeaseError: It can't be told.
    """
    if watch:
        raise NotSupported(
            f"--watch is not supported by {service.backend_url}, which tells nobody of changes; "
            "ask every few seconds with: watch leasectl status TYPE"
        )
    found = count(service, pool_type)
    if as_json:
        at = rfc3339(service.clock.wall())
        pools = [encode_counted(each) for each in found]
        show_json({"backend": service.backend_url, "at": at, "pools": pools})
    elif found:
        show("\n".join(map(_text, found)))
    else:
        note(
            f"nothing here has leased anything from {service.backend_url} yet, and it doesn't say "
            "which types it has; name one: leasectl status TYPE"
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
