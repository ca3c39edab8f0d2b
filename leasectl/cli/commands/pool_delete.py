"""``leasectl pool delete``: delete a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option

EXAMPLE = """\b
Example:
  leasectl pool delete azure--install
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@option("--force", is_flag=True, help="Even if resources are held, or requests wait for them.")
@pool_options.quiet
@options.backend
def command(*, pool_type: str, force: bool, quiet: bool, backend: str | None) -> None:
    """Delete a pool with all of its resources.

    A pool that is in use isn't deleted (exit code 77) unless forced: then its holders have lost
    their leases, and whoever waits is told that there is no such pool.
    """
    open_service(backend).pools.delete_pool(pool_type, force=force)
    pool_options.say_done(quiet, f'deleted pool "{pool_type}"')
