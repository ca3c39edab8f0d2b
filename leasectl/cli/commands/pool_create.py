"""``leasectl pool create``: make a pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.engines.facts import NO_SETTINGS
from leasectl.pools.admin import PoolService
from leasectl.pools.properties import NO_CHANGE
from leasectl.pools.settings import SettingsChange, changed, describe
from leasectl.text.naming import next_names

EXAMPLE = """\b
Examples:
  leasectl pool create azure--install --count 2
  leasectl pool create lab --names rack-7,rack-8
  leasectl pool create quota --count 3 --property region=us-east-1
  leasectl pool create azure--destroy --count 50 --pace 20s --aging 30m
"""


@new_command(epilog=EXAMPLE)
@pool_options.new_pool_argument
@pool_options.count
@pool_options.new_names
@pool_options.properties
@pool_options.pace
@pool_options.burst
@pool_options.aging
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    count: int | None,
    names: str | None,
    properties: tuple[str, ...],
    pace_seconds: float | None,
    burst: int | None,
    aging_seconds: float | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Make a pool.

    Its --pace, --burst and --aging, and what its resources are (--property), can be changed later
    with: leasectl pool set TYPE. A name that is in another pool, or is expected in one (pool
    expect), is refused (exit code 77); what is in the default pool by default is taken over.
    """
    wanted = pool_options.wanted_resources(count, names)
    made = next_names(pool_type, wanted, ()) if isinstance(wanted, int) else wanted
    change = pool_options.property_change(properties)
    settings = changed(NO_SETTINGS, SettingsChange(pace_seconds, burst, aging_seconds))
    grants = "" if settings == NO_SETTINGS else f"; {describe(settings)}"
    said = f'made pool "{pool_type}" of {pool_options.described(made)}{grants}'
    PoolService(open_service(backend)).create(pool_type, made, settings, change or NO_CHANGE)
    if change is not None:
        said = f"{said}; {change.describe()}"
    pool_options.say_done(quiet, said)
