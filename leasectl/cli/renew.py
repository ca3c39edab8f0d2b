"""``leasectl renew``: give what a handle holds its full time again."""

from __future__ import annotations

import time

import click

from leasectl.cli import options
from leasectl.cli.context import no_handle_of_ours, open_service
from leasectl.cli.output import emit
from leasectl.leases.renew import renew
from leasectl.leases.targets import Targets
from leasectl.model import whole
from leasectl.system.clock import rfc3339

EXAMPLE = """\b
Example:
  leasectl renew --handle "$h"
"""


@click.command(epilog=EXAMPLE, options_metavar="--handle H")
@options.handle
def command(*, handle: str) -> None:
    """Renew what a handle holds, and print when it expires now.

    Only leases with --ttl expire; for others this is a sign of life, and "never" is printed.
    """
    service = open_service(for_handles=True)
    record = Targets(service).handle_at(handle)
    if record is None:
        raise no_handle_of_ours(handle, service, "renewed")
    sent = time.time()
    record = renew(service, whole(record))
    ttl = record.request.ttl_seconds
    emit(f"{'never' if ttl is None else rfc3339(sent + ttl)}\n")
