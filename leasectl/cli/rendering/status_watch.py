"""``status --watch``."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from textwrap import fill
from typing import Protocol, Union

from leasectl.cli.rendering.output import ReaderGone, emit, emit_json, note
from leasectl.cli.rendering.status_columns import NO_MATCH, look_of_stdout, overview_text
from leasectl.cli.rendering.table import obeys_escapes, output_width
from leasectl.cli.rendering.waiting import pause
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from leasectl.pools.admin import PoolService
from leasectl.pools.overview import ALL_ROWS, Overview, Rows
from leasectl.pools.overview_json import encode_overview
from leasectl.system.clock import boottime_seconds, rfc3339
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.signals import SignalTrap
from leasectl.text.wording import NO_POOLS, cells, shorten

LONGEST_REFRESH_SECONDS = 2.0
LOOK_SECONDS = 0.2


class Shown(Protocol):
    """How things are at one time.

    Attributes:
        at: That time, in seconds since the epoch.
    """

    @property
    def at(self) -> float: ...

    @property
    def facts(self) -> object:
        """What is so, without what is otherwise only because time has passed."""

    def text(self) -> str:
        """For people."""

    def encoded(self) -> object:
        """Return it as JSON."""


# How things are, or why that can't be told.
_Found = Union[Shown, BackendUnreachable]
_Ends = Sequence[Interrupt]


class _Ended(Exception):
    """The reader of the output is gone."""


class _Pools:
    """Pools, as a `Shown`."""

    def __init__(self, overview: Overview, *, wide: bool, free: bool) -> None:
        self.at = overview.at
        self._overview, self._wide, self._free = overview, wide, free

    @property
    def facts(self) -> object:
        return self._overview.timeless()

    def text(self) -> str:
        look = look_of_stdout(wide=self._wide, free=self._free)
        is_empty = not (self._overview.pools or self._overview.works)
        if is_empty and self._overview.rows != ALL_ROWS:
            return f"{NO_MATCH}\n"
        return f"{NO_POOLS}\n" if is_empty else overview_text(self._overview, look)

    def encoded(self) -> object:
        return encode_overview(self._overview)


def show_pools_again(
    service: Service, pool_type: str | None, rows: Rows, *, wide: bool, as_json: bool
) -> None:
    """Show pools until a signal comes or stdout has no reader any more.

    Args:
        service: On the backend whose pools are shown.
        pool_type: The one to show; None for all.
        rows: What to list of it.
        wide: Every column, nothing cut.
        as_json: One object a line, after each change.

    Raises:
        LeaseError: The first look has failed.
    """

    def look(ends: _Ends) -> Shown:
        overview = PoolService(service).overview(pool_type).listing(rows)
        return _Pools(overview, wide=wide, free=pool_type is not None)

    show_again(look, lambda ends: _sleep_until_changed(service, ends), as_json=as_json)


def show_again(
    look: Callable[[_Ends], Shown], sleep: Callable[[_Ends], None], *, as_json: bool
) -> None:
    """Show a status again and again, until a signal comes or stdout has no reader any more.

    Args:
        look: Returns the status; the interrupts that it is given end it sooner.
        sleep: Sleeps until the next look; the interrupts that it is given end it sooner.
        as_json: One object a line, after each change.

    Raises:
        LeaseError: The first look has failed.
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
                found = _found(look, ends, is_first=shown is None)
                if live:
                    emit(_screen(_body(found)))
                else:
                    _write_change(found, shown, as_json=as_json)
                shown = found
                sleep(ends)
        except (ReaderGone, _Ended):
            return


def _found(look: Callable[[_Ends], Shown], ends: _Ends, *, is_first: bool) -> _Found:
    """How things are, or, later than the first time, why that can't be told."""
    try:
        return look(ends)
    except BackendUnreachable as error:
        if is_first:
            raise
        return error


def _end() -> None:
    raise _Ended


def _write_change(found: _Found, shown: _Found | None, *, as_json: bool) -> None:
    """Write down how things are, if they differ from what was shown before."""
    if isinstance(found, BackendUnreachable):
        if not isinstance(shown, BackendUnreachable):
            note(str(found))
    elif shown is None or isinstance(shown, BackendUnreachable) or found.facts != shown.facts:
        if as_json:
            emit_json(found.encoded())
        else:
            emit(f"{rfc3339(found.at)}\n{found.text()}\n")


def _sleep_until_changed(service: Service, ends: _Ends) -> None:
    """Sleep until another process has changed the records, at most for the refresh time."""
    before = service.state.data_version()
    until = boottime_seconds() + LONGEST_REFRESH_SECONDS
    while boottime_seconds() < until:
        pause(LOOK_SECONDS, ends)
        if service.state.data_version() != before:
            return


def _body(found: _Found) -> str:
    if isinstance(found, BackendUnreachable):
        return fill(str(found), output_width() or 80)
    return found.text()


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
