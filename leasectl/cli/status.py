"""``leasectl status``: pools, who holds what, who waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import click

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.output import ReaderGone, emit, emit_json, lease_fields, note, show, show_json
from leasectl.cli.table import Column, output_width, shorten, table
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from leasectl.model import Handle, Lease, Overview, Pool, QueueEntry, Resource
from leasectl.pools.admin import PoolService
from leasectl.state.handles import renews_itself
from leasectl.system.clock import boottime_seconds, rfc3339
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.process import own_pid_namespace
from leasectl.text.durations import format_duration
from leasectl.text.naming import check_type
from leasectl.text.printable import printable
from leasectl.text.suggestions import NO_POOLS

LONGEST_REFRESH_SECONDS = 2.0
LOOK_SECONDS = 0.2

EXAMPLE = """\b
Examples:
  leasectl status
  leasectl status -t azure--install --json
"""

_COUNTS = (
    Column("CAPACITY", right=True),
    Column("FREE", right=True),
    Column("HELD", right=True),
    Column("WAITING", right=True),
)
# Names are for copying: all else is cut before they are.
_NAME_AT_LEAST = 253


@click.command(epilog=EXAMPLE)
@click.option(
    "-t",
    "--type",
    "pool_type",
    type=check_type,
    metavar="TYPE",
    shell_complete=options.complete_types,
    help="Only this pool. Default: all.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show it again whenever something changes, until interrupted or nobody reads it; a "
    "backend that doesn't answer any more is waited for.",
)
@options.json_output
@options.backend
def command(*, pool_type: str | None, watch: bool, as_json: bool, backend: str | None) -> None:
    """Show pools, who holds what, and who waits.

    HELD FOR is the time since the grant. GUARD is the process whose end releases the lease;
    an unguarded one stays until it is released, or ends as ENDS says; one elsewhere was got with
    another state directory, perhaps on another machine: HOST. An unconfirmed one was
    granted by serve, which doesn't know that its client has heard of it. With --json, times are
    RFC 3339 in UTC; with --watch as well, there is one object a line.
    """
    service = open_service(backend)
    if watch:
        _watch(service, pool_type, as_json)
        return
    overview = PoolService(service).overview(pool_type)
    if as_json:
        show_json(overview_fields(service, overview))
    elif overview.pools:
        show(overview_text(overview, output_width()))
    else:
        note(NO_POOLS)


class _Ended(Exception):
    """Nobody looks any more."""


def _watch(service: Service, pool_type: str | None, as_json: bool) -> None:
    """Show the overview until a signal comes or nobody reads it any more."""
    from textwrap import fill

    from leasectl.system.signals import SignalTrap

    live = sys.stdout.isatty() and not as_json
    with SignalTrap() as trap:
        ends = (
            Interrupt(trap.fd, READABLE, trap.check),
            # No event is asked for: a pipe without a reader reports an error all the same.
            Interrupt(1, 0, _end),
        )
        shown: Overview | BackendUnreachable | None = None
        try:
            while True:
                found = _look(service, pool_type, is_first=shown is None)
                if isinstance(found, BackendUnreachable):
                    if live:
                        emit(_screen(fill(str(found), output_width() or 80)))
                    elif not isinstance(shown, BackendUnreachable):
                        note(str(found))
                elif live:
                    emit(_screen(_body(found, output_width())))
                elif found != shown:
                    emit_json(overview_fields(service, found)) if as_json else emit(_dated(found))
                shown = found
                _sleep_until_changed(service, ends)
        except (ReaderGone, _Ended):
            return


def _look(
    service: Service, pool_type: str | None, *, is_first: bool
) -> Overview | BackendUnreachable:
    """How things are, or, later than the first time, why that can't be told."""
    try:
        return PoolService(service).overview(pool_type)
    except BackendUnreachable as error:
        if is_first:
            raise
        return error


def _end() -> None:
    raise _Ended


def _sleep_until_changed(service: Service, ends: Sequence[Interrupt]) -> None:
    """Sleep until another process has changed the records, at most for the refresh time."""
    from leasectl.cli.waiting import pause

    before = service.state.data_version()
    until = boottime_seconds() + LONGEST_REFRESH_SECONDS
    while boottime_seconds() < until:
        pause(LOOK_SECONDS, ends)
        if service.state.data_version() != before:
            return


def _dated(overview: Overview) -> str:
    text = overview_text(overview, output_width()) if overview.pools else "no pools\n"
    return f"{rfc3339(time.time())}\n{text}\n"


def _body(overview: Overview, width: int | None) -> str:
    return overview_text(overview, width) if overview.pools else f"{NO_POOLS}\n"


def _screen(body: str) -> str:
    """What replaces all that is on a terminal; what doesn't fit its height is counted."""
    import shutil

    columns, rows = shutil.get_terminal_size()
    at = time.strftime("%H:%M:%S")
    heading = f"leasectl status at {at}; Ctrl-C ends it"
    lines = [shorten(heading, columns, cut="end"), "", *body.splitlines()]
    if len(lines) > rows - 1:
        kept = max(1, rows - 2)
        lines = [*lines[:kept], shorten(f"… {len(lines) - kept} more lines", columns, cut="end")]
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"


def pool_counts(pool: Pool) -> dict[str, object]:
    """The numbers of a pool, as JSON shows them."""
    return {
        "capacity": pool.capacity,
        "free": pool.capacity - pool.held,
        "held": pool.held,
        "waiting": len(pool.queue),
    }


def overview_fields(service: Service, overview: Overview) -> dict[str, object]:
    """An overview as JSON shows it."""
    return {
        "backend": service.backend_url,
        "pools": [
            {
                "type": pool.type,
                **pool_counts(pool),
                "resources": [_resource_fields(each, overview) for each in pool.resources],
                "queue": [_entry_fields(entry) for entry in pool.queue],
            }
            for pool in overview.pools
        ],
    }


def _resource_fields(resource: Resource, overview: Overview) -> dict[str, object]:
    if resource.lease is None:
        nothing = dict.fromkeys((*_LEASE_KEYS, "host", "expires_in_seconds"))
        return {"name": resource.name, "state": "free", **nothing}
    guard = _guard_of(resource, overview)
    fields = lease_fields(
        resource.lease, guard_pid=guard.guard.pid if guard and guard.guard else None
    )
    unconfirmed = guard is not None and _is_unconfirmed(guard)
    return {
        "name": resource.name,
        "state": "unconfirmed" if unconfirmed else "held",
        **{key: fields[key] for key in _LEASE_KEYS},
        "host": _host(resource.lease),
        "expires_in_seconds": resource.expires_in_seconds,
    }


_LEASE_KEYS = (
    "holder_identity",
    "acquire_time",
    "renew_time",
    "lease_duration_seconds",
    "lease_transitions",
    "fence",
    "grant",
    "ticket",
    "guard_pid",
)


def _entry_fields(entry: QueueEntry) -> dict[str, object]:
    return {
        "ticket": entry.ticket,
        "holder_identity": entry.holder_identity,
        "count": entry.count,
        "since": rfc3339(entry.since),
    }


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
            handle = _guard_of(resource, overview)
            foreign = overview.shared and handle is None
            yield (
                printable(resource.name, longest=253),
                _since(lease.acquire_time),
                *([printable(_host(lease), longest=253)] if overview.shared else []),
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


def _guard_of(resource: Resource, overview: Overview) -> Handle | None:
    return overview.handles.get(resource.claim_key or "")


def _guard_text(handle: Handle | None) -> str:
    if handle is not None and _is_unconfirmed(handle):
        return "unconfirmed"
    if handle is None or handle.guard is None:
        return "unguarded"
    elsewhere = handle.guard.pid_namespace != own_pid_namespace()
    return f"pid {handle.guard.pid}{' elsewhere' if elsewhere else ''}"


def _is_unconfirmed(handle: Handle) -> bool:
    """Tell whether a server has granted it and doesn't know that its client heard of it."""
    return handle.served and handle.unconfirmed


def _host(lease: Lease) -> str:
    """Where the holder is, which its identity says last but one."""
    return (lease.holder_identity.split("/")[-2:-1] or ["-"])[0]


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
