"""``leasectl status``: pools, who holds what, who waits."""

from __future__ import annotations

from leasectl.backends.kinds import kind_of
from leasectl.backends.opening import ask_status
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.loaded import nothing_is_garbage
from leasectl.cli.shown.no_pools import note_no_pools
from leasectl.cli.shown.output import show, show_json
from leasectl.cli.shown.status_table import look_of_stdout, overview_text
from leasectl.errors import NotSupported
from leasectl.pools.admin import PoolService
from leasectl.pools.shown_json import encode_overview

EXAMPLE = """\b
Examples:
  leasectl status
  leasectl status -t azure--install
  leasectl status --wide
  leasectl status --json
"""


@new_command(epilog=EXAMPLE, options_metavar="[TYPE] [OPTIONS]")
@options.one_type(
    "Only this pool, with what is free of it; it may also stand without -t. Default: all pools."
)
@option(
    "--watch",
    is_flag=True,
    help="Show it again whenever something changes, until interrupted or nobody reads it; a "
    "backend that doesn't answer any more is waited for.",
)
@options.wide
@options.json_output
@options.backend
def command(
    *, pool_type: str | None, watch: bool, wide: bool, as_json: bool, backend: str | None
) -> None:
    """Show pools, who holds what, and who waits.

    Names stand below their pool's without its type: --03, and aB3xYz for a handle. HELD FOR is
    the time since the grant. ENDS is when it is to be released, or when it runs out; renewed,
    somebody keeps it from that; ttl, it runs out that long after its holder's last renewal. GUARD
    is the process whose end releases the lease; an unguarded one stays until it is released or
    ENDS; one elsewhere was got with another state directory, perhaps on another machine: HOST.
    An unconfirmed one was granted by serve, which doesn't know that its client has heard of it.
    ASKS FOR is how many, or which, a waiter wants, and WHERE what it has to be; a suspended one
    doesn't run, or nothing in the pool would do for it, and it is passed.

    CLOSED ones are free and nobody gets them: they are cordoned (leasectl pool cordon), or came to
    the DEFAULT pool just now and are held back for its grace. NOTES tell where a resource goes with
    its release, for how long it has joined, and whether its lease was asked back (leasectl reclaim)
    and what its holder said. PROPERTIES are what it is: leasectl pool set TYPE --property K=V

    Of a lease proxy that tells nobody what it has, what handles here hold there is listed.

    A terminal shows as many columns as it has room for, and what is the same in all rows once;
    --wide, a file or a pipe gets all, names in full. --json has the same facts, times in RFC 3339
    and UTC; with --watch as well, there is one object a line. NO_COLOR is heeded.
    """
    service = open_service(backend, to_show=not watch)
    url, settings = service.backend_url, service.settings
    if kind_of(url).counted_by:
        from leasectl.cli.shown.status_counts import show_counts

        show_counts(service, pool_type, watch=watch, as_json=as_json)
        return
    if not watch:
        nothing_is_garbage()
    try:
        told = ask_status(url, settings, pool_type=pool_type, clock=service.clock)
    except NotSupported:
        from leasectl.cli.shown.status_handles import show_handles

        show_handles(service, pool_type, watch=watch, as_json=as_json)
        return
    if told is not None:
        from leasectl.pools.counted_json import are_counts

        if are_counts(told):
            from leasectl.cli.shown.status_counts import show_counts_behind

            show_counts_behind(service, told, pool_type, watch=watch, as_json=as_json)
            return
    if watch:
        from leasectl.cli.shown.status_watch import show_pools_again

        show_pools_again(service, pool_type, wide=wide, as_json=as_json)
        return
    overview = PoolService(service).overview(pool_type, told=told)
    if as_json:
        show_json(encode_overview(overview, as_list=iter))
    elif overview.pools or overview.works:
        show(overview_text(overview, look_of_stdout(wide=wide, free=pool_type is not None)))
    else:
        note_no_pools(backend)
