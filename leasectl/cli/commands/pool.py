"""``leasectl pool``: what a pool consists of. Each of its commands has a module of its own."""

from __future__ import annotations

import click

from leasectl.cli.commands import (
    pool_add,
    pool_apply,
    pool_cordon,
    pool_create,
    pool_delete,
    pool_expect,
    pool_join,
    pool_leave,
    pool_list,
    pool_move,
    pool_of,
    pool_remove,
    pool_set,
    pool_uncordon,
)
from leasectl.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def command() -> None:
    """Make, change, list and delete pools.

    A pool is all resources of one type. Each resource has a name of its own and is held by one
    holder at a time. These commands print nothing on stdout, except list, of, expect --list and
    join --hold.
    """


# In the order in which help shows them.
command.add_command(pool_create.command, "create")
command.add_command(pool_apply.command, "apply")
command.add_command(pool_add.command, "add")
command.add_command(pool_remove.command, "remove")
command.add_command(pool_move.command, "move")
command.add_command(pool_cordon.command, "cordon")
command.add_command(pool_uncordon.command, "uncordon")
command.add_command(pool_join.command, "join")
command.add_command(pool_leave.command, "leave")
command.add_command(pool_expect.command, "expect")
command.add_command(pool_of.command, "of")
command.add_command(pool_set.command, "set")
command.add_command(pool_list.command, "list")
command.add_command(pool_delete.command, "delete")
