"""``leasectl kubernetes``: what a cluster needs for leases. Each of its commands is a module."""

from __future__ import annotations

import click

from leasectl.cli.commands import kubernetes_manifest
from leasectl.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def command() -> None:
    """Say what a cluster of Kubernetes needs for leases.

    Nothing is installed there: leases are objects of its own API.
    """


command.add_command(kubernetes_manifest.command, "manifest")
