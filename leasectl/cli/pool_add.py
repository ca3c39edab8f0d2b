"""``leasectl pool add``: add resources to a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.pools.admin import PoolService

EXAMPLE = """\b
Examples:
  leasectl pool add azure--install --count 2
  leasectl pool add lab --names rack-9 --property arch=arm64
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.count
@pool_options.names
@pool_options.properties
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    count: int | None,
    names: str | None,
    properties: tuple[str, ...],
    quiet: bool,
    backend: str | None,
) -> None:
    """Add resources to a pool; whoever waits may get them at once.

    With --count, their numbers follow the highest that the pool has.
    """
    wanted = pool_options.wanted_resources(count, names)
    change = pool_options.property_change(properties)
    service = open_service(backend)
    if change is not None:
        wanted = PoolService(service).add_with(pool_type, wanted, change)
    elif isinstance(wanted, int):
        wanted = PoolService(service).add_numbered(pool_type, wanted)
    else:
        service.pools.add_resources(pool_type, wanted)
    are = "" if change is None else f"; {change.describe()}"
    said = f'added to pool "{pool_type}": {pool_options.described(wanted)}{are}'
    pool_options.say_done(quiet, said)
