"""``leasectl maintenance cancel``: end the maintenance of a node, or what asks for it."""

from __future__ import annotations

from leasectl.cli import maintenance_options
from leasectl.cli.command import new_command
from leasectl.cli.maintenance_options import cluster_of
from leasectl.cli.shown.output import note

EXAMPLE = """\b
Example:
  leasectl maintenance cancel worker-1
"""


@new_command(epilog=EXAMPLE)
@maintenance_options.node_argument
@maintenance_options.quiet
@maintenance_options.backend
def command(*, node: str, quiet: bool, backend: str | None) -> None:
    """Ask for no maintenance of a node any more.

    If it has begun, it ends: the node is uncordoned, unless somebody else had cordoned it.
    """
    from leasectl.maintenance.asked import cancel

    had_asked = cancel(cluster_of(backend), node)
    if not quiet:
        note(f"{node} asks for no maintenance{' any more' if had_asked else ''}")
