"""The text of `status`, whatever the backend tells."""

from __future__ import annotations

from leasectl.cli.rendering.status_columns import look_of_stdout, overview_text, release_due
from leasectl.cli.rendering.table import Column, number, output_width, table
from leasectl.pools.counted import CountedType, Counts
from leasectl.pools.overview import ALL_ROWS, Overview, Rows
from leasectl.pools.status import HandlesHere, HeldHere, Status
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given
from leasectl.text.wording import NO_POOLS, counted, printable, printable_url


def status_text(status: Status, *, wide: bool, free: bool) -> str:
    """Return the lines of a status; nothing if there is nothing to show.

    Args:
        status: The status.
        wide: Show all columns of pools in full.
        free: List free resources of pools, too.
    """
    if isinstance(status, Overview):
        look = look_of_stdout(wide=wide, free=free)
        return overview_text(status, look) if status.pools or status.works else ""
    if isinstance(status, Counts):
        return "".join(map(_text_of_type, status.types))
    return _text_of_handles(status) if status.handles else ""


def nothing_to_show(status: Status) -> str:
    """Say why a status has no lines."""
    if isinstance(status, Counts):
        return (
            "Boskos can't list its pools, and this state directory has leased nothing from "
            f"{status.backend} yet; name a pool: leasectl status POOL"
        )
    if isinstance(status, HandlesHere):
        url = printable_url(status.backend)
        return f"{url} doesn't report its pools, and this state directory has no handles there"
    if status.rows == ALL_ROWS:
        return NO_POOLS
    is_queue = status.rows == Rows(waiting=True)
    return "no request waits" if is_queue else "no lease or request matches"


_COUNT_COLUMNS = (
    Column("OWNER", shrinks=1, at_least=20),
    number("HELD"),
    Column("NAMES", shrinks=2),
)


def _text_of_type(each: CountedType) -> str:
    states = [f"{number} {printable(state)}" for state, number in each.states.items()]
    waiting = [f"{each.waiting} waiting here"] if each.waiting else []
    rows = [(as_given(own.owner), str(own.held), " ".join(own.names)) for own in each.owners]
    head = f"{each.type}: {counted(each.capacity, 'resource')}, {', '.join(states + waiting)}\n"
    lost = "".join(
        f"  {loss.name} was lost at {rfc3339(loss.at)}, by "
        f"{as_given(loss.holder_identity, longest=60)}\n"
        for loss in each.lost
    )
    return (
        head
        + (table(_COUNT_COLUMNS, rows, output_width(), indent="  ").text if rows else "")
        + lost
    )


_HANDLE_COLUMNS = (
    Column("HANDLE", shrinks=1, at_least=12),
    Column("NAMES", shrinks=2, at_least=253),
    number("HELD FOR"),
    Column("ENDS", goes=1),
    number("GUARD", goes=2),
)
_NOTHING = "-"


def _text_of_handles(status: HandlesHere) -> str:
    rows = [_row(each, status.at) for each in status.handles]
    url = printable_url(status.backend)
    head = f"{url} doesn't report its pools; handles of this state directory:\n"
    return head + table(_HANDLE_COLUMNS, rows, output_width(), indent="  ").text


def _row(each: HeldHere, at: float) -> list[str]:
    names = " ".join(each.names) or ("waiting" if each.state == "acquiring" else _NOTHING)
    ends = _NOTHING
    if each.release_time is not None:
        ends = release_due(each.release_time, at)
    since = _NOTHING if each.since is None else format_duration(round(at - each.since))
    guard = _NOTHING if each.guard_pid is None else str(each.guard_pid)
    return [each.handle, names, since, ends, guard]
