"""Pools and who holds what, as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leasectl.cli.table import Column, shorten, table
from leasectl.model import Pool
from leasectl.pools.shown import Overview, ShownLease, ShownPool
from leasectl.pools.shown_json import pool_counts
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable

_COUNTS = (
    Column("CAPACITY", right=True),
    Column("FREE", right=True),
    Column("HELD", right=True),
    Column("WAITING", right=True),
)
# Names are for copying: all else is cut before they are.
_NAME_AT_LEAST = 253


def pools_table(pools: Sequence[Pool | ShownPool], width: int | None) -> str:
    """One line a pool."""
    columns = (Column("POOL", shrinks=1, at_least=_NAME_AT_LEAST), *_COUNTS)
    rows = [
        (printable(pool.type, longest=200), *map(str, pool_counts(pool).values())) for pool in pools
    ]
    return table(columns, rows, width)


def overview_text(overview: Overview, width: int | None) -> str:
    """All of an overview, for people."""
    parts = [pools_table(overview.pools, width)]
    for pool in overview.pools:
        held = list(_held_rows(pool, overview.at))
        if held or pool.queue:
            parts.append(f"\n{shorten(pool.type, width)}\n")
        if held:
            parts.append(_held_table(held, width))
        if held and pool.queue:
            parts.append("\n")
        if pool.queue:
            parts.append(_queue_table(pool, overview.at, width))
    return "".join(parts)


def _held_table(rows: Sequence[Sequence[str]], width: int | None) -> str:
    columns = [
        Column("RESOURCE", shrinks=5, at_least=_NAME_AT_LEAST),
        Column("HELD FOR", right=True),
        Column("GUARD", shrinks=4, at_least=9, cut="end"),
        Column("ENDS", shrinks=3, at_least=8, cut="end"),
        Column("HOLDER", shrinks=2, at_least=12),
        Column("LABELS", shrinks=1, at_least=8, cut="end"),
    ]
    if not any(row[-1] for row in rows):
        columns.pop()
    return table(columns, rows, width, indent="  ")


def _held_rows(pool: ShownPool, at: float) -> Iterator[tuple[str, ...]]:
    for resource in sorted(pool.resources, key=lambda each: _by_number(each.name)):
        shown = resource.lease
        if shown is not None:
            yield (
                printable(resource.name, longest=253),
                _time_between(shown.lease.acquire_time, at),
                _guard_text(shown),
                _ends_text(shown, at),
                printable(shown.holder.identity, longest=1000),
                " ".join(
                    printable(f"{key}={value}", longest=500) for key, value in shown.lease.labels
                ),
            )


def _queue_table(pool: ShownPool, at: float, width: int | None) -> str:
    columns = (
        Column("PLACE", right=True),
        Column("WAITING FOR", right=True),
        Column("COUNT", right=True),
        Column("HOLDER", shrinks=1, at_least=12),
    )
    rows = [
        (
            str(waiter.place),
            _time_between(waiter.since, at),
            str(waiter.count),
            printable(waiter.holder.identity, longest=1000),
        )
        for waiter in pool.queue
    ]
    return table(columns, rows, width, indent="  ")


def _guard_text(shown: ShownLease) -> str:
    if shown.unconfirmed:
        return "unconfirmed"
    if shown.guard == "unknown":
        return "elsewhere"
    if shown.guard == "none":
        return "unguarded"
    return f"pid {shown.guard_pid}{' elsewhere' if shown.guard == 'elsewhere' else ''}"


def _ends_text(shown: ShownLease, at: float) -> str:
    parts = []
    if shown.release_time is not None:
        parts.append(f"in {_time_between(at, shown.release_time)} (release)")
    if shown.expires_in_seconds is not None:
        ttl, left = shown.lease.lease_duration_seconds or 0.0, max(0.0, shown.expires_in_seconds)
        if shown.renewed_by in ("run", "keeper"):
            # A time that is always a few seconds away, and never comes, would mislead.
            parts.append(f"renewed by {shown.renewed_by} (ttl {format_duration(ttl)})")
        else:
            # Its holder may renew it, and somebody elsewhere, who can't be seen from here.
            parts.append(f"in {format_duration(left)} unless renewed")
    return ", ".join(parts) or "-"


def _time_between(earlier: float, later: float) -> str:
    return format_duration(max(0.0, later - earlier))


def _by_number(name: str) -> tuple[str, int, str]:
    """Order names as people count: ``--9`` before ``--10``."""
    stem, dashes, number = name.rpartition("--")
    return (stem, int(number), name) if dashes and number.isdecimal() else (name, -1, name)
