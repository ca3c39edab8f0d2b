"""``leasectl renew``: give what a handle holds its full time again."""

from __future__ import annotations

import time

from leasectl.cli import options
from leasectl.cli.command import new_handle_command
from leasectl.cli.context import no_handle_of_ours, open_service
from leasectl.cli.output import emit, emit_json
from leasectl.leases.renew import renew
from leasectl.leases.targets import Targets
from leasectl.model import whole
from leasectl.system.clock import rfc3339

EXAMPLE = """\b
Example:
  leasectl renew "$h"
"""


@new_handle_command(epilog=EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@options.json_output
def command(*, handle: str, as_json: bool) -> None:
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
    expires = None if ttl is None else rfc3339(sent + ttl)
    if as_json:
        emit_json({"handle": service.state.names_path(record.id), "expires_at": expires})
    else:
        emit(f"{expires or 'never'}\n")
