"""``leasectl pool cordon``: names take no new holder."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.pools.memberships import MembershipService

EXAMPLE = """\b
Examples:
  leasectl pool cordon --names azure--install--00,azure--install--01
  leasectl pool uncordon --names azure--install--01
"""


@new_command(epilog=EXAMPLE, options_metavar="--names A,B [OPTIONS]")
@pool_options.needed_names
@pool_options.quiet
@options.backend
def command(*, names: str, quiet: bool, backend: str | None) -> None:
    """Have resources take no new holder.

    Whoever holds one keeps it until its release. They stay in their pool, and move with their
    cordon. "leasectl pool uncordon" ends it.
    """
    wanted = pool_options.distinct_names(names)
    memberships = MembershipService(open_service(backend))
    before, after, _ = memberships.cordon(wanted, is_cordoned=True)
    pool_options.say_cordoned("cordoned", before, quiet=quiet, is_cordoned=True)
    pool_options.warn_of_unmet(memberships, *(each.pool for each in after))
