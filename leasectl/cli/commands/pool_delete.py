"""``leasectl pool delete``: delete a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.shown.output import note
from leasectl.text.wording import listed

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

    What was to move to it with its release (leasectl pool move --when-free) stays where it is.

    A pool that is in use isn't deleted (exit code 77) unless forced: then its holders have lost
    their leases, and whoever waits is told that there is no such pool.
    """
    service = open_service(backend)
    on_their_way = [
        resource.name
        for pool in service.pools.pools()
        for resource in pool.resources
        if resource.member is not None and resource.member.moves_to == pool_type
    ]
    service.pools.delete_pool(pool_type, force=force)
    pool_options.say_done(quiet, f'deleted pool "{pool_type}"')
    if on_their_way:
        note(f"what was to move there with its release stays where it is: {listed(on_their_way)}")
