"""``leasectl pool list``: which pools there are."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.shown.no_pools import note_no_pools
from leasectl.cli.shown.output import show, show_json
from leasectl.cli.shown.status_table import look_of_stdout, pools_table
from leasectl.pools.admin import PoolService
from leasectl.pools.shown_json import pool_counts, pool_grants

EXAMPLE = """\b
Examples:
  leasectl pool list
  leasectl pool list --json
"""


@new_command(epilog=EXAMPLE)
@options.wide
@options.json_output
@options.backend
def command(*, wide: bool, as_json: bool, backend: str | None) -> None:
    """List pools: how many are free and held, and how they grant."""
    service = open_service(backend)
    pools = PoolService(service).listed()
    if as_json:
        listed = [
            {
                "type": pool.type,
                **pool_counts(pool),
                **pool_grants(pool),
                "properties": {
                    each.name: dict(each.properties) for each in pool.resources if each.properties
                },
            }
            for pool in pools
        ]
        show_json({"backend": service.backend_url, "pools": listed})
    elif pools:
        show(pools_table(pools, look_of_stdout(wide=wide)))
    else:
        note_no_pools(backend)
