"""``leasectl use``: have a name be in use, so that nobody is answered that it can be had."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_handle_command
from leasectl.cli.context import open_service
from leasectl.cli.held_handles import handle_with, held_name
from leasectl.leases.use import use
from leasectl.model import whole

EXAMPLE = """\b
Example:
  leasectl use "$h" --name "$(leasectl cat "$h")"
"""


@new_handle_command(epilog=EXAMPLE, options_metavar="H --name NAME")
@options.handle
@held_name
def command(*, handle: str, name: str) -> None:
    """Have something that a handle holds be in use, until unuse.

    What is in use isn't given back when a reclaim asks for it; what was answered to be ready can't
    be used (77) until it is taken or its mark has gone. No server is asked. It isn't counted: to
    use it twice is to use it. Releases, timers, guards and force go on, and end the use.
    """
    service = open_service(for_handles=True)
    use(service, whole(handle_with(service, handle, name, "used")), name)
