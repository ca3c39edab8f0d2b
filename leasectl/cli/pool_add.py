"""``leasectl pool add``: add resources to a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.pools.admin import PoolService

EXAMPLE = """\b
Example:
  leasectl pool add azure--install --count 2
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.count
@pool_options.names
@pool_options.quiet
@options.backend
def command(
    *, pool_type: str, count: int | None, names: str | None, quiet: bool, backend: str | None
) -> None:
    """Add resources to a pool; whoever waits may get them at once.

    With --count, their numbers follow the highest that the pool has.
    """
    wanted = pool_options.wanted_resources(count, names)
    service = open_service(backend)
    if isinstance(wanted, int):
        wanted = PoolService(service).add_numbered(pool_type, wanted)
    else:
        service.pools.add_resources(pool_type, wanted)
    pool_options.say_done(quiet, f'added to pool "{pool_type}": {pool_options.described(wanted)}')
