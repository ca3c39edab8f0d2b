"""``leasectl pool remove``: take resources out of a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command, option
from leasectl.cli.context import open_service
from leasectl.pools.memberships import MembershipService

EXAMPLE = """\b
Example:
  leasectl pool remove azure--install --names azure--install--01
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.needed_names
@option("--force", is_flag=True, help="Take a held resource from its holder.")
@pool_options.quiet
@options.backend
def command(*, pool_type: str, names: str, force: bool, quiet: bool, backend: str | None) -> None:
    """Take resources out of a pool: all that are named, or none.

    A resource that is held isn't removed (exit code 77) unless forced: then its holder has lost
    its lease, and a command under "leasectl run" is told so. Whose request can't be met without
    them is told to you; it waits on.
    """
    wanted = pool_options.distinct_names(names)
    service = open_service(backend)
    service.pools.remove_resources(pool_type, wanted, force=force)
    pool_options.say_done(
        quiet, f'removed from pool "{pool_type}": {pool_options.described(wanted)}'
    )
    pool_options.warn_of_unmet(MembershipService(service), pool_type)
