"""``status --watch``."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from itertools import accumulate
from textwrap import fill

from leasectl.cli.rendering.output import ReaderGone, emit, emit_json, note, output_interrupts
from leasectl.cli.rendering.status_text import nothing_to_show, status_text
from leasectl.cli.rendering.table import obeys_escapes, output_width
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from leasectl.pools.overview import Rows
from leasectl.pools.status import Status, encode_status, watch
from leasectl.system.clock import rfc3339
from leasectl.system.signals import SignalTrap
from leasectl.text.wording import cells, shorten


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
        for found, is_new in watch(service, pool_type, rows, interrupts=ends):
            if is_live:
                emit(_screen(text_of(found)))
            elif not is_new:
                continue
            elif isinstance(found, BackendUnreachable):
                note(str(found))
            elif as_json:
                emit_json(encode_status(found))
            else:
                emit(f"{rfc3339(found.at)}\n{text_of(found)}\n")


def _raise_reader_gone() -> None:
    raise ReaderGone("stdout was closed")


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
