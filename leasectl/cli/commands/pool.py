"""``leasectl pool``: the group of commands on pools."""

from __future__ import annotations

import click

from leasectl.cli.commands import pool_admin, pool_members
from leasectl.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def command() -> None:
    """Create, change, list and delete pools.

    A pool is all resources of one type. Each resource has a unique name and is held by one
    holder at a time. These commands print nothing on stdout, except list, of, expect --list and
    join --hold.
    """


# In the order in which help shows them.
command.add_command(pool_admin.create, "create")
command.add_command(pool_admin.apply, "apply")
command.add_command(pool_admin.add, "add")
command.add_command(pool_admin.remove, "remove")
command.add_command(pool_members.move, "move")
command.add_command(pool_members.cordon, "cordon")
command.add_command(pool_members.uncordon, "uncordon")
command.add_command(pool_members.join, "join")
command.add_command(pool_members.leave, "leave")
command.add_command(pool_members.expect, "expect")
command.add_command(pool_members.of, "of")
command.add_command(pool_admin.set_, "set")
command.add_command(pool_admin.list_, "list")
command.add_command(pool_admin.delete, "delete")
