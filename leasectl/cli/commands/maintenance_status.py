"""``leasectl maintenance status``: how the maintenance of nodes stands."""

from __future__ import annotations

import time

import click

from leasectl.cli import maintenance_options, options
from leasectl.cli.command import new_command
from leasectl.cli.maintenance_options import cluster_of, settings_of
from leasectl.cli.shown.output import note, show, show_json
from leasectl.cli.shown.table import Column, table
from leasectl.cli.shown.terminal import output_width
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.maintenance.asked import Standing

EXAMPLE = """\b
Examples:
  leasectl maintenance status
  leasectl maintenance status worker-1 --json
"""

_COLUMNS = (
    Column("NODE", shrinks=3, at_least=24),
    Column("ASKED"),
    Column("STATUS", shrinks=2, at_least=16, cut="end"),
    Column("CORDONED"),
    Column("LEASE", shrinks=1),
    Column("OVER IN", right=True),
)
_LONGEST_STATUS = 300
# A time is shorter; what somebody has written in vain may be anything.
_LONGEST_ASKED = 12


@new_command(epilog=EXAMPLE)
@click.argument("node", type=maintenance_options.check_node, metavar="[NODE]", required=False)
@options.json_output
@maintenance_options.lease_namespace
@maintenance_options.lease_name
@maintenance_options.identity
@maintenance_options.backend
def command(
    *,
    node: str | None,
    as_json: bool,
    lease_namespace: str,
    lease_name: str,
    identity: str,
    backend: str | None,
) -> None:
    """Show which nodes are under maintenance, or ask for it.

    Those where it has ended stay in the table. With NODE, of that one, whatever there is. STATUS is
    what the controller has noted, and nothing before it has seen the node; LEASE is who has the
    node's Lease, CORDONED whose the cordon is.
    """
    from leasectl.maintenance.asked import is_without_controller, standings

    settings = settings_of(lease_name, identity)
    cluster = cluster_of(backend, lease_namespace, identity)
    found = standings(cluster, settings, node)
    if as_json:
        show_json([_facts(each) for each in found])
    elif found:
        now = time.time()
        laid_out = table(_COLUMNS, [_row(each, now) for each in found], output_width())
        show(laid_out.text)
        if node is not None and not laid_out.is_whole:
            show(f"\nSTATUS in full: {_status(found[0])}\n")
    else:
        note("no node asks for maintenance")
    for each in found:
        why = settings.has_no_lease(each.node)
        if each.asked is not None and why:
            note(f"{each.node}: {why}, here and of leasectl maintenance reconcile")
    if any(each.asked is not None for each in found) and is_without_controller(cluster):
        note(f"nobody does it: no leasectl maintenance reconcile leads in {lease_namespace}")


def _row(standing: Standing, now: float) -> tuple[str, ...]:
    over_at = standing.over_at
    return (
        standing.node,
        "-" if standing.asked is None else printable(standing.asked, longest=_LONGEST_ASKED),
        _status(standing),
        standing.cordon or "no",
        printable(standing.holder or "-"),
        "-" if over_at is None else format_duration(max(0.0, over_at - now)),
    )


def _status(standing: Standing) -> str:
    return printable(standing.status or "-", longest=_LONGEST_STATUS)


def _facts(standing: Standing) -> dict[str, object]:
    return {
        "node": standing.node,
        "asked": standing.asked,
        "status": standing.status or None,
        "cordon": standing.cordon or None,
        "holder": standing.holder or None,
        "over_at": rfc3339(standing.over_at),
    }
