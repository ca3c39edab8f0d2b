"""``leasectl pool uncordon``: names take holders again."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.pools.memberships import MembershipService

EXAMPLE = """\b
Example:
  leasectl pool uncordon --names azure--install--00
"""


@new_command(epilog=EXAMPLE, options_metavar="--names A,B [OPTIONS]")
@pool_options.needed_names
@pool_options.quiet
@options.backend
def command(*, names: str, quiet: bool, backend: str | None) -> None:
    """Have resources that were cordoned take holders again.

    Whoever waits may get them at once.
    """
    wanted = pool_options.distinct_names(names)
    before = MembershipService(open_service(backend)).cordon(wanted, is_cordoned=False).before
    pool_options.say_cordoned("uncordoned", before, quiet=quiet, is_cordoned=False)
