"""``leasectl status``: pools, who holds what, who waits."""

from __future__ import annotations

import click

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.output import note, show, show_json
from leasectl.cli.status_table import overview_text
from leasectl.cli.table import output_width
from leasectl.pools.admin import PoolService
from leasectl.pools.shown_json import encode_overview
from leasectl.text.naming import check_type
from leasectl.text.suggestions import NO_POOLS

EXAMPLE = """\b
Examples:
  leasectl status
  leasectl status -t azure--install --json
"""


@click.command(epilog=EXAMPLE)
@click.option(
    "-t",
    "--type",
    "pool_type",
    type=check_type,
    metavar="TYPE",
    shell_complete=options.complete_types,
    help="Only this pool. Default: all.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show it again whenever something changes, until interrupted or nobody reads it; a "
    "backend that doesn't answer any more is waited for.",
)
@options.json_output
@options.backend
def command(*, pool_type: str | None, watch: bool, as_json: bool, backend: str | None) -> None:
    """Show pools, who holds what, and who waits.

    HELD FOR is the time since the grant. GUARD is the process whose end releases the lease;
    an unguarded one stays until it is released, or ends as ENDS says; one elsewhere was got with
    another state directory, perhaps on another machine: HOST. An unconfirmed one was
    granted by serve, which doesn't know that its client has heard of it. With --json, times are
    RFC 3339 in UTC; with --watch as well, there is one object a line.
    """
    service = open_service(backend)
    if watch:
        from leasectl.cli.status_watch import show_again

        show_again(service, pool_type, as_json=as_json)
        return
    overview = PoolService(service).overview(pool_type)
    if as_json:
        show_json(encode_overview(overview))
    elif overview.pools:
        show(overview_text(overview, output_width()))
    else:
        note(NO_POOLS)
