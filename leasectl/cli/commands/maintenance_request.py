"""``leasectl maintenance request``: ask for the maintenance of a node."""

from __future__ import annotations

from leasectl.cli import maintenance_options
from leasectl.cli.command import new_command
from leasectl.cli.described import option
from leasectl.cli.maintenance_options import cluster_of
from leasectl.cli.shown.output import note
from leasectl.text.printable import printable

EXAMPLE = """\b
Examples:
  leasectl maintenance request worker-1 --for 30m
  leasectl maintenance status worker-1
"""


@new_command(epilog=EXAMPLE, options_metavar="--for D [OPTIONS]")
@maintenance_options.node_argument
@option(
    "--for",
    "asked",
    required=True,
    metavar="D",
    help="For how long, like 30m, from when the node's Lease is had.",
)
@maintenance_options.quiet
@maintenance_options.backend
def command(*, node: str, asked: str, quiet: bool, backend: str | None) -> None:
    """Ask for maintenance of a node, for a time.

    It is noted at the node, and done by leasectl maintenance reconcile, wherever that runs. Asked
    for again with another time, longer or shorter, it lasts as long as that from when it began.
    """
    from leasectl.maintenance.asked import ask_for
    from leasectl.maintenance.facts import parse_wanted

    before = ask_for(cluster_of(backend), node, asked)
    if quiet:
        return
    asks = f"{node} asks for maintenance of {asked.strip()}"
    if before is None:
        note(asks)
    elif parse_wanted(before) == parse_wanted(asked):
        note(f"{asks} already, counted from its beginning: nothing changes")
    else:
        note(f'{asks} instead of "{printable(before)}", counted from its beginning')
