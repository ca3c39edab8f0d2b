"""``leasectl maintenance``: a window on a node, and its end. Each of its commands is a module."""

from __future__ import annotations

import click

from leasectl.cli.commands import (
    maintenance_cancel,
    maintenance_reconcile,
    maintenance_request,
    maintenance_status,
)
from leasectl.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def command() -> None:
    """Take nodes of Kubernetes out of work for a time.

    A node is asked for maintenance by an annotation; reconcile, the controller, then holds its
    Lease, cordons and drains it, and uncordons it when the time is over.
    """


# In the order in which help shows them.
command.add_command(maintenance_request.command, "request")
command.add_command(maintenance_cancel.command, "cancel")
command.add_command(maintenance_status.command, "status")
command.add_command(maintenance_reconcile.command, "reconcile")
