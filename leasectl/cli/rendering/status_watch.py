"""``status --watch``."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Sequence
from itertools import accumulate
from textwrap import fill

from leasectl.cli.rendering.output import ReaderGone, emit, emit_json, note, output_interrupts
from leasectl.cli.rendering.status_text import nothing_to_show, status_text
from leasectl.cli.rendering.table import obeys_escapes, output_width
from leasectl.cli.rendering.waiting import pause
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from leasectl.pools.counted import Counts
from leasectl.pools.overview import Overview, Rows
from leasectl.pools.status import HandlesHere, Status, encode_status, read_status
from leasectl.system.clock import boottime_seconds, rfc3339
from leasectl.system.poll import Interrupt
from leasectl.system.signals import SignalTrap
from leasectl.text.wording import cells, shorten

_REFRESH_SECONDS = 2.0
# A server that only counts goes through all that it has each time that it is asked.
_REFRESH_COUNTS_SECONDS = 5.0
_LOOK_SECONDS = 0.2


def watch_status(
    service: Service, pool_type: str | None, rows: Rows, *, wide: bool, as_json: bool
) -> None:
    """Show a status again and again, until a signal comes or stdout has no reader any more.

    Args:
        service: On the backend.
        pool_type: The pool to show; None for all.
        rows: What to list of the pools.
        wide: Every column, nothing cut.
        as_json: One object a line, after each change.

    Raises:
        LeaseError: The first look has failed.
    """

    def text_of(status: Status | BackendUnreachable) -> str:
        if isinstance(status, BackendUnreachable):
            return fill(str(status), output_width() or 80)
        free = pool_type is not None
        return status_text(status, wide=wide, free=free) or f"{nothing_to_show(status)}\n"

    is_live = obeys_escapes(1) and not as_json
    with SignalTrap() as trap, contextlib.suppress(ReaderGone):
        ends = output_interrupts(trap, _raise_reader_gone)
        found: Status | BackendUnreachable | None = None
        while True:
            before = found
            try:
                found = read_status(service, pool_type, rows, interrupts=ends)
            except BackendUnreachable as error:
                if before is None:
                    raise
                found = error
            if is_live:
                emit(_screen(text_of(found)))
            elif isinstance(found, BackendUnreachable):
                if not isinstance(before, BackendUnreachable):
                    note(str(found))
            elif _timeless(found) != _timeless(before):
                if as_json:
                    emit_json(encode_status(found))
                else:
                    emit(f"{rfc3339(found.at)}\n{text_of(found)}\n")
            _sleep(service, ends, is_counted=isinstance(found, Counts))


def _raise_reader_gone() -> None:
    raise ReaderGone("stdout was closed")


def _timeless(status: Status | BackendUnreachable | None) -> object:
    """Return a status without what changes only because time passes."""
    if isinstance(status, Counts):
        return status._replace(at=0.0)
    return status.timeless() if isinstance(status, (Overview, HandlesHere)) else None


def _sleep(service: Service, ends: Sequence[Interrupt], *, is_counted: bool) -> None:
    """Sleep until it is time to look again, or another process has changed the records."""
    if is_counted:
        pause(_REFRESH_COUNTS_SECONDS, ends)
        return
    before = service.state.data_version()
    until = boottime_seconds() + _REFRESH_SECONDS
    while boottime_seconds() < until and service.state.data_version() == before:
        pause(_LOOK_SECONDS, ends)


def _screen(body: str) -> str:
    """What replaces all that is on a terminal; what doesn't fit its height is counted."""
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
