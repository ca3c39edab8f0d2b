"""``leasectl unuse``: have a name be in use no more."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_handle_command
from leasectl.cli.context import open_service
from leasectl.cli.held_handles import handle_with, held_name
from leasectl.leases.use import unuse
from leasectl.model import whole

EXAMPLE = """\b
Example:
  leasectl unuse "$h" --name "$(leasectl cat "$h")"
"""


@new_handle_command(epilog=EXAMPLE, options_metavar="H --name NAME")
@options.handle
@held_name
def command(*, handle: str, name: str) -> None:
    """End what leasectl use began. If it isn't in use, or not held any more, nothing happens."""
    service = open_service(for_handles=True)
    unuse(service, whole(handle_with(service, handle, name, "used")), name)
