"""``leasectl pool``: what a pool consists of."""

from __future__ import annotations

from collections.abc import Sequence

import click

from leasectl.cli import options, pool_apply
from leasectl.cli.context import open_service
from leasectl.cli.groups import CommandGroup
from leasectl.cli.output import note, show, show_json
from leasectl.errors import InvalidRequest
from leasectl.pools.admin import PoolService
from leasectl.text.naming import MOST_AT_ONCE, check_name, check_type, next_names
from leasectl.text.printable import printable
from leasectl.text.suggestions import NO_POOLS
from leasectl.text.wording import counted

CREATE_EXAMPLE = """\b
Examples:
  leasectl pool create azure--install --count 2
  leasectl pool create lab --names rack-7,rack-8
"""
ADD_EXAMPLE = """\b
Example:
  leasectl pool add azure--install --count 2
"""
REMOVE_EXAMPLE = """\b
Example:
  leasectl pool remove azure--install --names azure--install--01
"""
LIST_EXAMPLE = """\b
Examples:
  leasectl pool list
  leasectl pool list --json
"""
DELETE_EXAMPLE = """\b
Example:
  leasectl pool delete azure--install
"""

pool_argument = click.argument(
    "pool_type", type=check_type, metavar="TYPE", shell_complete=options.complete_types
)
new_pool_argument = click.argument("pool_type", type=check_type, metavar="TYPE")
count = click.option(
    "-c",
    "--count",
    type=int,
    metavar="N",
    help="So many resources, named TYPE--00, TYPE--01 and so on.",
)
names = click.option(
    "--names", metavar="A,B", help="Resources of these names, with commas between them."
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Make, change, list and delete pools.

    A pool is all resources of one type. Each resource has a name of its own and is held by one
    holder at a time. These commands print nothing on stdout, except list.
    """


@command.command(epilog=CREATE_EXAMPLE)
@new_pool_argument
@count
@names
@pool_apply.quiet
@options.backend
def create(
    *, pool_type: str, count: int | None, names: str | None, quiet: bool, backend: str | None
) -> None:
    """Make a pool."""
    wanted = _wanted(count, names)
    made = next_names(pool_type, wanted, ()) if isinstance(wanted, int) else wanted
    open_service(backend).pools.create_pool(pool_type, made)
    _tell(quiet, f'made pool "{pool_type}" of {_listed(made)}')


command.add_command(pool_apply.command, "apply")


@command.command(epilog=ADD_EXAMPLE)
@pool_argument
@count
@names
@pool_apply.quiet
@options.backend
def add(
    *, pool_type: str, count: int | None, names: str | None, quiet: bool, backend: str | None
) -> None:
    """Add resources to a pool; whoever waits may get them at once.

    With --count, their numbers follow the highest that the pool has.
    """
    wanted = _wanted(count, names)
    service = open_service(backend)
    if isinstance(wanted, int):
        wanted = PoolService(service).add_numbered(pool_type, wanted)
    else:
        service.pools.add_resources(pool_type, wanted)
    _tell(quiet, f'added to pool "{pool_type}": {_listed(wanted)}')


@command.command(epilog=REMOVE_EXAMPLE)
@pool_argument
@click.option(
    "--names", required=True, metavar="A,B", help="Which resources, with commas between them."
)
@click.option("--force", is_flag=True, help="Take a held resource from its holder.")
@pool_apply.quiet
@options.backend
def remove(*, pool_type: str, names: str, force: bool, quiet: bool, backend: str | None) -> None:
    """Take resources out of a pool: all that are named, or none.

    A resource that is held isn't removed (exit code 77) unless forced: then its holder has lost
    its lease, and a command under "leasectl run" is told so.
    """
    wanted = _name_list(names)
    open_service(backend).pools.remove_resources(pool_type, wanted, force=force)
    _tell(quiet, f'removed from pool "{pool_type}": {_listed(wanted)}')


@command.command("list", epilog=LIST_EXAMPLE)
@options.json_output
@options.backend
def list_pools(*, as_json: bool, backend: str | None) -> None:
    """List pools, and how many resources are free and held."""
    from leasectl.cli.status import pool_counts, pools_table
    from leasectl.cli.table import output_width

    service = open_service(backend)
    pools = PoolService(service).show()
    if as_json:
        counts = [{"type": pool.type, **pool_counts(pool)} for pool in pools]
        show_json({"backend": service.backend_url, "pools": counts})
    elif pools:
        show(pools_table(pools, output_width()))
    else:
        note(NO_POOLS)


@command.command(epilog=DELETE_EXAMPLE)
@pool_argument
@click.option(
    "--force", is_flag=True, help="Even if resources are held, or requests wait for them."
)
@pool_apply.quiet
@options.backend
def delete(*, pool_type: str, force: bool, quiet: bool, backend: str | None) -> None:
    """Delete a pool with all of its resources.

    A pool that is in use isn't deleted (exit code 77) unless forced: then its holders have lost
    their leases, and whoever waits is told that there is no such pool.
    """
    open_service(backend).pools.delete_pool(pool_type, force=force)
    _tell(quiet, f'deleted pool "{pool_type}"')


def _wanted(count: int | None, names: str | None) -> int | tuple[str, ...]:
    if (count is None) == (names is None):
        raise InvalidRequest("say which resources: either --count N or --names A,B")
    if names is not None:
        return _name_list(names)
    assert count is not None
    if not 1 <= count <= MOST_AT_ONCE:
        raise InvalidRequest(f"--count {count}: it can be 1 to {MOST_AT_ONCE} at a time")
    return count


def _name_list(text: str) -> tuple[str, ...]:
    """Read names that make or end something: an empty one is a variable that was never set."""
    names = tuple(text.split(","))
    if "" in names:
        raise InvalidRequest(f'--names "{printable(text)}": one of the names is empty')
    for name in names:
        check_name(name)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f'--names: "{twice}" is in it twice')
    if len(names) > MOST_AT_ONCE:
        raise InvalidRequest(f"--names: at most {MOST_AT_ONCE} at a time")
    return names


def _listed(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'resource')}, {pool_apply.examples(names)}"


def _tell(quiet: bool, text: str) -> None:
    if not quiet:
        note(text)
