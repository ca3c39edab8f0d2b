"""``leasectl pool add``: add resources to a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.pools.admin import PoolService
from leasectl.pools.properties import NO_CHANGE

EXAMPLE = """\b
Examples:
  leasectl pool add azure--install --count 2
  leasectl pool add azure--install --names big-9 --property size=big
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.count
@pool_options.new_names
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

    With --count, their numbers follow the highest that the pool has. A name that is in the pool
    already stays as it is. One that is in another pool, or is expected in one (pool expect), is
    refused (exit code 77) with that pool; what is in the default pool by default is taken over.
    """
    wanted = pool_options.wanted_resources(count, names)
    change = pool_options.property_change(properties)
    pools = PoolService(open_service(backend))
    added = pools.add_with(pool_type, wanted, change or NO_CHANGE)
    are = "" if change is None else f"; {change.describe()}"
    there = () if isinstance(wanted, int) else [each for each in wanted if each not in added]
    for what, which in (("added to", added), ("already in", there)):
        if which:
            said = f'{what} pool "{pool_type}": {pool_options.described(which)}{are}'
            pool_options.say_done(quiet, said)
