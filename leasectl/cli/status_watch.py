"""``leasectl status --watch``: show it again whenever something changes."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Union

from leasectl.cli.output import ReaderGone, emit, emit_json, note
from leasectl.cli.status_table import Look, look_of_stdout, overview_text
from leasectl.cli.terminal import obeys_escapes, output_width
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from leasectl.pools.admin import PoolService
from leasectl.pools.shown import Overview
from leasectl.pools.shown_json import encode_overview
from leasectl.system.clock import boottime_seconds, rfc3339
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.signals import SignalTrap
from leasectl.text.suggestions import NO_POOLS
from leasectl.text.width import cells, shorten

LONGEST_REFRESH_SECONDS = 2.0
LOOK_SECONDS = 0.2

# How things are, or why that can't be told.
_Found = Union[Overview, BackendUnreachable]


class _Ended(Exception):
    """Nobody looks any more."""


def show_again(service: Service, pool_type: str | None, *, wide: bool, as_json: bool) -> None:
    """Show the overview until a signal comes or nobody reads it any more.

    Args:
        service: On the backend whose pools are shown.
        pool_type: The one to show; None for all.
        wide: Every column, nothing cut.
        as_json: One object a line, each time that something has changed.

    Raises:
        LeaseError: Things can't be told the first time.
    """
    live = obeys_escapes(1) and not as_json
    with SignalTrap() as trap:
        ends = (
            Interrupt(trap.fd, READABLE, trap.check),
            # No event is asked for: a pipe without a reader reports an error all the same.
            Interrupt(1, 0, _end),
        )
        shown: _Found | None = None
        try:
            while True:
                found = _look(service, pool_type, is_first=shown is None)
                look = look_of_stdout(wide=wide, free=pool_type is not None)
                if live:
                    emit(_screen(_body(found, look)))
                else:
                    _write_change(found, shown, None if as_json else look)
                shown = found
                _sleep_until_changed(service, ends)
        except (ReaderGone, _Ended):
            return


def _look(service: Service, pool_type: str | None, *, is_first: bool) -> _Found:
    """How things are, or, later than the first time, why that can't be told."""
    try:
        return PoolService(service).overview(pool_type)
    except BackendUnreachable as error:
        if is_first:
            raise
        return error


def _end() -> None:
    raise _Ended


def _write_change(found: _Found, shown: _Found | None, look: Look | None) -> None:
    """Write down how things are, if they differ from what was shown before; None for JSON."""
    if isinstance(found, BackendUnreachable):
        if not isinstance(shown, BackendUnreachable):
            note(str(found))
    elif not isinstance(shown, Overview) or found.changed_since(shown):
        emit_json(encode_overview(found)) if look is None else emit(_dated(found, look))


def _sleep_until_changed(service: Service, ends: Sequence[Interrupt]) -> None:
    """Sleep until another process has changed the records, at most for the refresh time."""
    from leasectl.cli.waiting import pause

    before = service.state.data_version()
    until = boottime_seconds() + LONGEST_REFRESH_SECONDS
    while boottime_seconds() < until:
        pause(LOOK_SECONDS, ends)
        if service.state.data_version() != before:
            return


def _dated(overview: Overview, look: Look) -> str:
    text = overview_text(overview, look) if overview.pools or overview.works else "no pools\n"
    return f"{rfc3339(overview.at)}\n{text}\n"


def _body(found: _Found, look: Look) -> str:
    if isinstance(found, BackendUnreachable):
        from textwrap import fill

        return fill(str(found), output_width() or 80)
    return overview_text(found, look) if found.pools else f"{NO_POOLS}\n"


def _screen(body: str) -> str:
    """What replaces all that is on a terminal; what doesn't fit its height is counted."""
    import shutil

    columns, rows = shutil.get_terminal_size()
    heading = f"leasectl status at {time.strftime('%H:%M:%S')}; Ctrl-C ends it"
    lines = [shorten(heading, columns, cut="end"), "", *body.splitlines()]
    heights = [_rows_of(line, columns) for line in lines]
    if sum(heights) > rows - 1:
        kept = max(1, sum(taken <= rows - 2 for taken in accumulate(heights)))
        lines = [*lines[:kept], shorten(f"… {len(lines) - kept} more lines", columns, cut="end")]
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"


def _rows_of(line: str, columns: int) -> int:
    """How many rows of a terminal a line takes."""
    return max(1, -(-cells(re.sub(r"\x1b\[\d*m", "", line)) // columns))
