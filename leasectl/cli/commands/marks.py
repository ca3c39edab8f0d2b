"""``leasectl marks``: what somebody wants back of what a handle holds."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_handle_command
from leasectl.cli.context import open_service
from leasectl.cli.held_handles import held_handles
from leasectl.cli.shown.output import note, show, show_json
from leasectl.cli.shown.table import Column, table
from leasectl.cli.shown.terminal import output_width
from leasectl.leases.asked import Asked, asked_of
from leasectl.model import whole
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration

EXAMPLE = """\b
Example:
  leasectl marks "$h"
"""

_COLUMNS = (
    Column("NAME", shrinks=2),
    Column("STATE"),
    Column("IN USE"),
    Column("ENDS IN", right=True),
    Column("ASKED BY", shrinks=1),
)


@new_handle_command(epilog=EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@options.json_output
def command(*, handle: str, as_json: bool) -> None:
    """Show what a reclaim wants back of what a handle holds.

    marked: it waits for an answer; ready: it can be taken, and not be used any more; keep: it
    isn't taken. A mark ends by itself: what was ready can be used again then.
    """
    service = open_service(for_handles=True)
    asked = [
        each
        for record in held_handles(service, handle, "looked at")
        for each in asked_of(service, whole(record))
    ]
    now = service.clock.elapsed()
    if as_json:
        show_json([_facts(each, now) for each in asked])
        return
    rows = [
        (
            each.name,
            each.mark.state,
            "yes" if each.is_in_use else "no",
            format_duration(max(0.0, each.ends_at - now)),
            each.mark.asked_by,
        )
        for each in asked
    ]
    if rows:
        show(table(_COLUMNS, rows, output_width()).text)
    else:
        note("nothing is asked back")


def _facts(asked: Asked, now: float) -> dict[str, object]:
    return {
        "name": asked.name,
        "state": asked.mark.state,
        "in_use": asked.is_in_use,
        "ends_in_seconds": round(max(0.0, asked.ends_at - now), 3),
        "asked_by": asked.mark.asked_by,
        "asked_at": rfc3339(asked.mark.made_at),
        "fence": asked.note.fence,
    }
