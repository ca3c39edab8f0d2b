"""``leasectl pool create``: make a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.text.naming import next_names

EXAMPLE = """\b
Examples:
  leasectl pool create azure--install --count 2
  leasectl pool create lab --names rack-7,rack-8
"""


@new_command(epilog=EXAMPLE)
@pool_options.new_pool_argument
@pool_options.count
@pool_options.names
@pool_options.quiet
@options.backend
def command(
    *, pool_type: str, count: int | None, names: str | None, quiet: bool, backend: str | None
) -> None:
    """Make a pool."""
    wanted = pool_options.wanted_resources(count, names)
    made = next_names(pool_type, wanted, ()) if isinstance(wanted, int) else wanted
    open_service(backend).pools.create_pool(pool_type, made)
    pool_options.say_done(quiet, f'made pool "{pool_type}" of {pool_options.described(made)}')
