"""Pools and who holds what, as tables for people."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from leasectl.cli.status_facts import handle_of, host_of, is_unconfirmed, pool_counts
from leasectl.cli.table import Column, shorten, table
from leasectl.model import Handle, Lease, Overview, Pool, Resource
from leasectl.state.handles import renews_itself
from leasectl.system.clock import boottime_seconds
from leasectl.system.process import own_pid_namespace
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


def pools_table(pools: Sequence[Pool], width: int | None) -> str:
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
        held = list(_held_rows(pool, overview))
        if held or pool.queue:
            parts.append(f"\n{shorten(pool.type, width)}\n")
        if held:
            parts.append(_held_table(held, width, shared=overview.shared))
        if held and pool.queue:
            parts.append("\n")
        if pool.queue:
            parts.append(_queue_table(pool, width))
    return "".join(parts)


def _held_table(rows: Sequence[Sequence[str]], width: int | None, *, shared: bool) -> str:
    columns = [
        Column("RESOURCE", shrinks=5, at_least=_NAME_AT_LEAST),
        Column("HELD FOR", right=True),
        *([Column("HOST", shrinks=4, at_least=8)] if shared else []),
        Column("GUARD", shrinks=4, at_least=9, cut="end"),
        Column("ENDS", shrinks=3, at_least=8, cut="end"),
        Column("HOLDER", shrinks=2, at_least=12),
        Column("LABELS", shrinks=1, at_least=8, cut="end"),
    ]
    if not any(row[-1] for row in rows):
        columns.pop()
    return table(columns, rows, width, indent="  ")


def _held_rows(pool: Pool, overview: Overview) -> Iterator[tuple[str, ...]]:
    for resource in sorted(pool.resources, key=lambda each: _by_number(each.name)):
        lease = resource.lease
        if lease is not None:
            handle = handle_of(resource, overview)
            foreign = overview.shared and handle is None
            yield (
                printable(resource.name, longest=253),
                _since(lease.acquire_time),
                *([printable(host_of(lease), longest=253)] if overview.shared else []),
                "elsewhere" if foreign else _guard_text(handle),
                _ends_text(resource, handle, foreign=foreign),
                printable(_holder(lease, overview), longest=1000),
                " ".join(printable(f"{key}={value}", longest=500) for key, value in lease.labels),
            )


def _queue_table(pool: Pool, width: int | None) -> str:
    columns = (
        Column("PLACE", right=True),
        Column("WAITING FOR", right=True),
        Column("COUNT", right=True),
        Column("HOLDER", shrinks=1, at_least=12),
    )
    rows = [
        (
            str(place),
            _since(entry.since),
            str(entry.count),
            printable(entry.holder_identity, longest=1000),
        )
        for place, entry in enumerate(pool.queue, start=1)
    ]
    return table(columns, rows, width, indent="  ")


def _guard_text(handle: Handle | None) -> str:
    if is_unconfirmed(handle):
        return "unconfirmed"
    if handle is None or handle.guard is None:
        return "unguarded"
    elsewhere = handle.guard.pid_namespace != own_pid_namespace()
    return f"pid {handle.guard.pid}{' elsewhere' if elsewhere else ''}"


def _holder(lease: Lease, overview: Overview) -> str:
    """Who holds it; without the host where that has a column of its own."""
    parts = lease.holder_identity.split("/")
    return "/".join((*parts[:-2], parts[-1])) if overview.shared else lease.holder_identity


def _ends_text(resource: Resource, handle: Handle | None, *, foreign: bool) -> str:
    parts = []
    if handle is not None and handle.release_at is not None:
        left = max(0.0, handle.release_at - boottime_seconds())
        parts.append(f"in {format_duration(left)} (release)")
    lease = resource.lease
    if resource.expires_in_seconds is not None and lease is not None:
        ttl, left = lease.lease_duration_seconds or 0.0, max(0.0, resource.expires_in_seconds)
        if handle is not None and renews_itself(handle):
            # A time that is always a few seconds away, and never comes, would mislead.
            parts.append(f"renewed (ttl {format_duration(ttl)})")
        else:
            # Somebody elsewhere may renew it, which can't be seen from here.
            unless = " unless renewed" if foreign else ""
            parts.append(f"in {format_duration(left)}{unless}")
    return ", ".join(parts) or "-"


def _since(wall_seconds: float) -> str:
    return format_duration(max(0.0, time.time() - wall_seconds))


def _by_number(name: str) -> tuple[str, int, str]:
    """Order names as people count: ``--9`` before ``--10``."""
    stem, dashes, number = name.rpartition("--")
    return (stem, int(number), name) if dashes and number.isdecimal() else (name, -1, name)
