"""``leasectl pool leave``: a name goes from its pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.pools.joining import forget_stay
from leasectl.pools.memberships import MembershipService

EXAMPLE = """\b
Example:
  leasectl pool join azure--install --name host-7 --ttl 1h
  leasectl pool leave azure--install --name host-7
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.name
@pool_options.quiet
@options.backend
def command(*, pool_type: str, name: str, quiet: bool, backend: str | None) -> None:
    """Have a name leave its pool, with its release if it is held.

    Until then it takes no new holder. Where it belongs (pool expect) stays said. One that is in no
    pool has left already (exit code 0); in another pool, it stays there (66).
    """
    service = open_service(backend)
    memberships = MembershipService(service)
    (before,), (after,), _ = memberships.leave(pool_type, name)
    forget_stay(service, name)
    when = "" if after.pool is None else " when it is released"
    said = f'leaves pool "{pool_type}"{when}: "{name}"'
    if before.pool is None:
        said = f'not in pool "{pool_type}", nor in any other: "{name}"'
    pool_options.say_done(quiet, said)
    pool_options.warn_of_unmet(memberships, pool_type)
