"""``leasectl status`` where a server tells nobody what it has: what handles here hold there."""

from __future__ import annotations

from leasectl.cli.shown.status_looks import show_looked
from leasectl.cli.shown.table import Column, table
from leasectl.cli.shown.terminal import output_width
from leasectl.leases.held_here import HeldHere, held_here
from leasectl.leases.service import Service
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable_url

_COLUMNS = (
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
        return head + table(_COLUMNS, rows, output_width(), indent="  ").text

    def _row(self, each: HeldHere) -> list[str]:
        names = " ".join(each.names) or ("waiting" if each.state == "acquiring" else _NOTHING)
        ends = _NOTHING
        if each.release_time is not None:
            ends = f"in {format_duration(max(0, round(each.release_time - self.at)))}"
        since = _NOTHING if each.since is None else format_duration(round(self.at - each.since))
        guard = _NOTHING if each.guard_pid is None else str(each.guard_pid)
        return [each.handle, names, since, ends, guard]

    def encoded(self) -> object:
        handles = [
            {
                **each._asdict(),
                "names": list(each.names),
                "since": rfc3339(each.since),
                "release_time": rfc3339(each.release_time),
            }
            for each in self.facts
        ]
        return {"backend": self._url, "at": rfc3339(self.at), "handles": handles}


def show_handles(service: Service, pool_type: str | None, *, watch: bool, as_json: bool) -> None:
    """Show what handles here hold, of one type or of all.

    Args:
        service: On a backend that doesn't tell.
        pool_type: The one type; None for all.
        watch: Again and again, until a signal comes or nobody reads it any more.
        as_json: As JSON.
    """
    show_looked(
        lambda ends: _ShownHandles(service, pool_type),
        refresh_seconds=_REFRESH_SECONDS,
        watch=watch,
        as_json=as_json,
    )
