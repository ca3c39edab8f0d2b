"""``leasectl pool set``: change how a pool grants, and what its resources are."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command, option
from leasectl.cli.context import open_service
from leasectl.errors import InvalidRequest
from leasectl.pools.admin import PoolService
from leasectl.pools.settings import NO_CHANGE, SettingsChange, describe
from leasectl.text.wording import counted

EXAMPLE = """\b
Examples:
  leasectl pool set azure--install --pace 20s
  leasectl pool set azure--install --pace 20s --burst 2 --aging 30m
  leasectl pool set azure--install --pace 0
  leasectl pool set lab --property site=brno --property size-
  leasectl pool set lab --names rack-7,rack-8 --property arch=arm64
  leasectl acquire lab --where arch=arm64 --where site!=brno
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.pace
@pool_options.burst
@pool_options.aging
@pool_options.properties
@option("--names", metavar="A,B", help="Put --property at these resources only. Default: all.")
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    pace_seconds: float | None,
    burst: int | None,
    aging_seconds: float | None,
    properties: tuple[str, ...],
    names: str | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Change how a pool grants, or what its resources are; what isn't given stays as it is.

    It holds at once, for those who wait, too; a longer pace counts from the next grant
    on, in etcd since the last one.

    A pace spreads out the starts of many jobs at once, and costs little: where each holds its
    lease for 20 minutes, 50 resources and a pace of 20s start 3 a minute rather than 50. A good
    one is the time that a lease is held, divided by the number of resources and by 1.2.

    A property is what a resource is, up to 32 of them: acquire and run can ask for it with --where,
    run tells its command, status shows it. It belongs to a resource, not to the pool: those that
    are added later don't have it. Keys are like names, values one line of up to 1 KiB. What is held
    stays with its holder, whatever it becomes. Everybody can read them: not for secrets.
    """
    change = SettingsChange(pace_seconds, burst, aging_seconds)
    to_be = pool_options.property_change(properties)
    if change == NO_CHANGE and to_be is None:
        raise InvalidRequest("say what to change: --pace D, --burst N, --aging D or --property K=V")
    if names is not None and to_be is None:
        raise InvalidRequest("--names goes with --property: a pool grants all its resources alike")
    only = None if names is None else pool_options.distinct_names(names)
    service = open_service(backend)
    pools = PoolService(service)
    said = []
    with service.atomic():
        if to_be is not None:
            others = pools.change_properties(pool_type, only, to_be)
            said.append(f"{to_be.describe()} ({counted(len(others), 'resource')} changed)")
        if change != NO_CHANGE:
            before, after = pools.change_settings(pool_type, change)
            was = "unchanged" if before == after else f"was {describe(before)}"
            said.append(f"{describe(after)} ({was})")
    for each in said:
        pool_options.say_done(quiet, f'pool "{pool_type}": {each}')
