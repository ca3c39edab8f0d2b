"""``leasectl pool set``: change how a pool grants."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.errors import InvalidRequest
from leasectl.pools.admin import PoolService
from leasectl.pools.settings import NO_CHANGE, SettingsChange, describe

EXAMPLE = """\b
Examples:
  leasectl pool set azure--install --pace 20s
  leasectl pool set azure--install --pace 20s --burst 2 --aging 30m
  leasectl pool set azure--install --pace 0
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.pace
@pool_options.burst
@pool_options.aging
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    pace_seconds: float | None,
    burst: int | None,
    aging_seconds: float | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Change how a pool grants; what isn't given stays as it is.

    It holds at once, for those who wait, too; a longer pace counts from the next grant
    on, in etcd since the last one.

    A pace spreads out the starts of many jobs at once, and costs little: where each holds its
    lease for 20 minutes, 50 resources and a pace of 20s start 3 a minute rather than 50. A good
    one is the time that a lease is held, divided by the number of resources and by 1.2.
    """
    change = SettingsChange(pace_seconds, burst, aging_seconds)
    if change == NO_CHANGE:
        raise InvalidRequest("say what to change: --pace D, --burst N or --aging D")
    before, after = PoolService(open_service(backend)).change_settings(pool_type, change)
    was = "unchanged" if before == after else f"was {describe(before)}"
    pool_options.say_done(quiet, f'pool "{pool_type}": {describe(after)} ({was})')
