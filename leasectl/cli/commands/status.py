"""``leasectl status``: pools, who holds what, who waits."""

from __future__ import annotations

from leasectl.backends.kinds import lacking
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.loaded import nothing_is_garbage
from leasectl.cli.rendering.output import note, show, show_json
from leasectl.cli.rendering.status_columns import note_no_pools
from leasectl.cli.rendering.status_text import nothing_to_show, status_text
from leasectl.pools.overview import ALL_ROWS, Overview, Rows
from leasectl.pools.status import encode_status, read_status


@new_command(options_metavar="[POOL] [OPTIONS]")
@options.one_type(
    "Only this pool, with its free resources; -t itself may be omitted. Default: all pools."
)
@option(
    "--watch",
    "Update whenever something changes, until interrupted; wait for a backend that doesn't answer.",
)
@option("--held", "List leases only.")
@option("--waiting", "List waiting requests only.")
@option(
    "--holder TEXT",
    "List only leases and requests of a job, build or host with TEXT in its name.",
    default="",
)
@options.wide
@options.json_output
@options.backend
def command(
    *,
    pool_type: str | None,
    watch: bool,
    held: bool,
    waiting: bool,
    holder: str,
    wide: bool,
    as_json: bool,
    backend: str | None,
) -> None:
    """Show pools, holders and waiters.

    In a table, --03 stands for POOL--03. HELD FOR is the time since the grant.

    \b
    ENDS      time of release or expiry; renewed: the holder renews the lease, so
              it doesn't expire; ttl 1m: it expires 1m after its last renewal
    GUARD     process whose end releases the lease; unguarded: none; elsewhere:
              the guard, if any, is known only where the lease was acquired
              (see HOST); unconfirmed: granted by serve, and not yet
              acknowledged by the client
    ASKS FOR  number of resources that a waiter wants, or the name of one; WHERE
              shows the properties that they must have; suspended: later
              requests go ahead of it, because its process is stopped, no
              resource matches, or its --each waits for another of its pools
    UNAVAILABLE
              resources without a holder that aren't granted: cordoned, or new
              in the default pool (pool set --default)
    NOTES     who cordoned a resource, where it moves when it is released, how
              long it stays after pool join, and the state of a reclaim

    --held, --waiting and --holder choose rows; the counts of a pool are always of all its leases
    and requests. --held --waiting leaves out free resources.

    If a lease proxy doesn't report its pools, only the leases of this state directory are shown.

    A terminal shows the columns that fit; --wide, a file or a pipe shows all. --json has the same
    facts, with times in RFC 3339; with --watch, one object per line. NO_COLOR is honoured.

    \b
    Examples:
      leasectl status
      leasectl status -t azure--install
      leasectl status --wide
      leasectl status --json
    """
    service = open_service(backend, to_show=not watch)
    rows = Rows(held, waiting, holder)
    if rows != ALL_ROWS and not service.kind.has_pools:
        raise lacking(f"--held, --waiting and --holder are not supported by {service.backend_url}")
    if watch:
        from leasectl.cli.rendering.status_watch import watch_status

        watch_status(service, pool_type, rows, wide=wide, as_json=as_json)
        return
    nothing_is_garbage()
    status = read_status(service, pool_type, rows)
    if as_json:
        show_json(encode_status(status, as_list=iter))
        return
    text = status_text(status, wide=wide, free=pool_type is not None)
    if text:
        show(text)
    elif isinstance(status, Overview) and rows == ALL_ROWS:
        note_no_pools(backend)
    else:
        note(nothing_to_show(status))
