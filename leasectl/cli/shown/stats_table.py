"""What came of pools' leases, as tables for people, and how durations and shares read in them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from leasectl.cli.shown.status_table import Look
from leasectl.cli.shown.table import YELLOW, Colour, Column, table
from leasectl.pools.statistics import Spread, Statistics
from leasectl.text.durations import format_seconds
from leasectl.text.printable import printable

UNKNOWN = "-"
_POOL = Column("POOL", shrinks=1, at_least=8)
_NO_SPREAD = (UNKNOWN,) * 3


def statistics_tables(found: Mapping[str, Statistics], look: Look) -> str:
    """One line a pool in each of two tables: how often, and how long."""
    names = {pool_type: printable(pool_type, longest=200) for pool_type in found}
    numbers = table(
        (
            _POOL,
            Column("GRANTS", right=True),
            Column("PEAK/MIN", right=True),
            Column("UTILISATION", right=True),
            Column("GAVE UP", right=True, colour=_marked),
            Column("LOST", right=True, colour=_marked),
            Column("TAKEN BACK", right=True, colour=_marked),
        ),
        [
            (
                names[pool_type],
                str(each.grants),
                str(each.peak_starts),
                share(each.utilisation),
                str(each.gave_up),
                str(each.lost),
                str(each.taken_back),
            )
            for pool_type, each in found.items()
        ],
        look.room,
        colour=look.colour,
    )
    durations = table(
        (
            _POOL,
            *(Column(title, right=True) for title in ("WAIT P50", "P95", "MAX")),
            *(Column(title, right=True) for title in ("HOLD P50", "P95", "MAX")),
            Column("ADVISED PACE", right=True, goes=1),
        ),
        [
            (
                names[pool_type],
                *spread_cells(each.wait),
                *spread_cells(each.hold),
                duration(each.advised_pace_seconds),
            )
            for pool_type, each in found.items()
        ],
        look.room,
        colour=look.colour,
    )
    return f"{numbers.text}\n{durations.text}"


def spread_cells(spread: Spread | None) -> tuple[str, ...]:
    """The cells of p50, p95 and max."""
    return _NO_SPREAD if spread is None else tuple(map(format_seconds, spread))


def duration(seconds: float | None) -> str:
    """A cell with a duration."""
    return UNKNOWN if seconds is None else format_seconds(seconds)


def share(of_one: float | None) -> str:
    """A cell with a share."""
    return UNKNOWN if of_one is None else f"{of_one:.0%}"


def stretch(since: float, until: float) -> str:
    """A stretch of time: ``2026-11-15 09:00 to 2026-11-22 09:00 UTC``."""
    form = "%Y-%m-%d %H:%M" if until - since >= 60 else "%Y-%m-%d %H:%M:%S"
    begin, end = (time.strftime(form, time.gmtime(at)) for at in (since, until))
    return f"{begin} to {end} UTC"


def _marked(text: str) -> Colour | None:
    return None if text == "0" else YELLOW
