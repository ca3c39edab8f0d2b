"""``leasectl renew``: give what a handle holds its full time again."""

from __future__ import annotations

import time

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import option, plain_command
from leasectl.cli.rendering.output import emit, emit_json, note, when_due
from leasectl.leases.paths import require_handle_at
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.system.clock import rfc3339


@plain_command(options_metavar="H [OPTIONS]")
@options.handle
@option(
    "--ttl D",
    "Change the ttl: from now on the lease expires this long after its last renewal. Without "
    "a guard, only leasectl renew renews it.",
    to="ttl_seconds",
)
@options.json_output
def command(*, handle: str, ttl_seconds: float | None, as_json: bool) -> None:
    """Renew the lease of a handle and print when it expires.

    Only leases with a ttl expire; for others "never" is printed. To keep a lease longer, give it a
    longer --ttl. To postpone a delayed release, use: leasectl release H --delay D --detach

    \b
    Examples:
      leasectl renew "$h"
      leasectl renew "$h" --ttl 2h
    """
    service = open_service(for_handles=True)
    record = require_handle_at(service, handle, done="renewed")
    sent = time.time()
    record = renew(service, whole(record), ttl_seconds=ttl_seconds)
    ttl = record.request.ttl_seconds
    _tell_of_release(service, record)
    expires = None if ttl is None else rfc3339(sent + ttl)
    if as_json:
        emit_json({"handle": service.state.names_path(record.id), "expires_at": expires})
    else:
        emit(f"{expires or 'never'}\n")


def _tell_of_release(service: Service, handle: Handle) -> None:
    """Say when the lease is released if that is earlier, as a renewal doesn't postpone it."""
    due, ttl = handle.release_at, handle.request.ttl_seconds
    left = None if due is None else max(0.0, due - service.clock.elapsed())
    if left is None or (ttl is not None and left >= ttl):
        return
    note(
        f"{handle.id} is released {when_due(left)}; to release it later: "
        f"leasectl release {handle.id} --delay D --detach"
    )
