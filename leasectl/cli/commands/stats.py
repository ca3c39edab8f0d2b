"""``leasectl stats``: what came of the leases of a pool, in numbers and as a picture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from leasectl.backends.kinds import Kind
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.rendering.charts import look_of_pictures, picture, width_of_pictures
from leasectl.cli.rendering.output import note, show, show_json
from leasectl.cli.rendering.plot import PlotFile, plot, plot_option
from leasectl.cli.rendering.stats_table import (
    NO_EVENTS_OF_DRY_RUN,
    WHEN_RECORDED,
    statistics_tables,
    stretch,
)
from leasectl.cli.rendering.status_columns import look_of_stdout
from leasectl.cli.rendering.table import BOLD, painted
from leasectl.pools.lease_bars import LeaseBar, lease_bars
from leasectl.pools.statistics import (
    PictureRow,
    Statistics,
    Window,
    busiest,
    encode_pool_statistics,
    ends,
    statistics_of_pools,
)
from leasectl.pools.timeline import pool_histories
from leasectl.text.wording import counted, printable, shorten

_NAME_AT_LEAST = 8
_MOST_PICTURES = 5


@new_command(options_metavar="[POOL] [OPTIONS]")
@options.one_type("Only this pool; -t itself may be omitted. Default: all pools.", group="Filters")
@options.since
@options.until
@option("--no-picture", "Print the tables only.", group="Output")
@plot_option
@options.json_output
@options.backend
def command(
    *,
    pool_type: str | None,
    since: float | None,
    until: float | None,
    no_picture: bool,
    plot_file: PlotFile | None,
    as_json: bool,
    backend: str | None,
) -> None:
    """Show lease statistics and charts.

    \b
    PEAK/MIN      most grants within any minute
    UTILISATION   share of the resources' time in which they were held
    GAVE UP       requests that ended without a grant
    LOST          leases that their holders lost
    TAKEN BACK    leases that leasectl freed because their holders had died
    WAIT          median, 95th percentile and maximum, of granted requests
    HOLD          the same, of leases that have ended
    ADVISED PACE  median hold / capacity / 1.2, shown once 20 leases have ended;
                  it spreads starts and hardly lengthens waits; set it with:
                  leasectl pool set POOL --pace D

    The chart shows, in columns of equal time, the average number of held resources and of waiting
    requests, and the peak of starts within a minute. The --plot of one pool also shows who held
    which resource, and how long each holder waited for it. --json has the same numbers, durations
    in seconds and times in RFC 3339.

    The numbers come from the events that are kept; see: leasectl events --help

    \b
    Examples:
      leasectl stats
      leasectl stats -t azure--install --since 7d
      leasectl stats -t azure--install --since 2h --json
    """
    options.check_stretch(since, until)
    service = open_service(backend, to_show=True)
    window = Window(since, time.time() if until is None else until)
    log = service.events
    found, rows = statistics_of_pools(pool_histories(service, pool_type, log=log), window)
    if as_json:
        show_json(encode_pool_statistics(service.backend_url, found, rows))
    drawn = busiest(rows, found, at_most=_MOST_PICTURES)
    if log.remark:
        note(log.remark)
    if not rows:
        note(_nothing_known(service.kind, pool_type, since, until))
    elif not as_json:
        show(_shown(found, [] if no_picture else drawn))
    if plot_file is not None and drawn:
        bars: Sequence[LeaseBar] = ()
        if len(drawn) == 1:
            bars = lease_bars(service, drawn[0].title, *ends(found))
        plot(drawn, plot_file, title=_heading(found), bars=bars)
    elif plot_file is not None:
        note(f"nothing to draw; {printable(plot_file.path)} was not written")


def _heading(found: Mapping[str, Statistics], room: int | None = None) -> str:
    subject = next(iter(found)) if len(found) == 1 else counted(len(found), "pool")
    named, when = printable(subject, longest=200), stretch(*ends(found))
    if room is not None:  # a name is told by its ends, a time isn't
        named = shorten(named, max(_NAME_AT_LEAST, room - len(when) - len(", ")))
    return f"{named}, {when}"


def _shown(found: Mapping[str, Statistics], rows: Sequence[PictureRow]) -> str:
    look, width = look_of_stdout(), width_of_pictures()
    heading = shorten(_heading(found, width), width)
    parts = [
        painted(heading, BOLD if look.colour else None) + "\n",
        statistics_tables(found, look),
    ]
    if rows:
        parts.append(picture(rows, width=width, look=look_of_pictures()))
    if len(rows) == _MOST_PICTURES < len(found):
        shown = f"charts of the {len(rows)} pools with the most grants"
        parts.append(f"{shown}; for the chart of another pool: -t POOL\n")
    return "\n".join(parts)


def _nothing_known(
    kind: Kind, pool_type: str | None, since: float | None, until: float | None
) -> str:
    """The note that there is nothing to show, and how to get data."""
    if kind.grants_nothing:
        return NO_EVENTS_OF_DRY_RUN
    which = f" of {pool_type}" if pool_type else ""
    when = "yet" if since is until is None else "of that time"
    return f"no events{which} {when}; {WHEN_RECORDED}"
