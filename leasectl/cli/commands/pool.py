"""``leasectl pool``: the group of commands on pools."""

from __future__ import annotations

from leasectl.cli.commands import pool_admin, pool_members
from leasectl.cli.groups import group


@group(
    pool_admin.create,
    pool_admin.apply,
    pool_admin.add,
    pool_admin.remove,
    pool_members.move,
    pool_members.cordon,
    pool_members.uncordon,
    pool_members.join,
    pool_members.leave,
    pool_members.expect,
    pool_members.of,
    pool_admin.set_,
    pool_admin.list_,
    pool_admin.delete,
)
def command() -> None:
    """Create, change, list and delete pools.

    A pool is all resources of one type. Each resource has a unique name and is held by one
    holder at a time. Only these commands print on stdout: list; of; expect --list; join --hold.
    """
