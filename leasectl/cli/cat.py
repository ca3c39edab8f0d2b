"""``leasectl cat``: show what a handle holds."""

from __future__ import annotations

import time

import click

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.output import emit, emit_json, emit_lines, lease_fields
from leasectl.errors import NotFound
from leasectl.leases.service import Service
from leasectl.leases.targets import Targets, read_names
from leasectl.model import Handle
from leasectl.system.clock import boottime_seconds, rfc3339

EXAMPLE = """\b
Example:
  leasectl cat --handle "$h" --format csv
"""


@click.command(epilog=EXAMPLE, options_metavar="--handle H [OPTIONS]")
@options.handle
@click.option(
    "--format",
    "form",
    type=click.Choice(["plain", "csv", "json"]),
    default="plain",
    show_default=True,
    help="plain: a name a line; csv: one line; json: all that is known of the handle.",
)
def command(*, handle: str, form: str) -> None:
    """Print what a handle holds now; nothing if it holds nothing."""
    if not handle:
        return
    service = open_service(for_handles=True)
    record = Targets(service).handle_at(handle)
    if record is None and form == "json":
        raise NotFound(
            f"{handle} is a copy: the handles themselves are in {service.state.directory}"
        )
    names = tuple(read_names(handle)) if record is None else record.names
    if record is not None and form == "json":
        emit_handle_json(service, record)
    elif form == "csv":
        emit(",".join(names) + "\n" if names else "")
    else:
        emit_lines(names)


def emit_handle_json(service: Service, handle: Handle) -> None:
    """Print all that is known of a handle."""
    left = None if handle.release_at is None else handle.release_at - boottime_seconds()
    guard_pid = handle.guard.pid if handle.guard else None
    emit_json(
        {
            "handle": service.state.names_path(handle.id),
            "backend": handle.backend,
            "type": handle.request.type,
            "count": handle.request.count,
            "scope": handle.request.scope,
            "state": handle.state,
            "acquisition": handle.acquisition,
            "release_at": None if left is None else rfc3339(time.time() + left),
            "leases": [lease_fields(lease, guard_pid=guard_pid) for lease in handle.leases],
        }
    )
