"""``leasectl pool move``: names go from pool to pool."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.engines.membership import stays_after_all
from leasectl.pools.memberships import MembershipService
from leasectl.text.naming import check_own_type

EXAMPLE = """\b
Examples:
  leasectl pool create edge --names edge-1
  leasectl pool create lab --names host-7,host-8,host-9
  leasectl pool move --names host-7,host-8 --to edge
  leasectl pool move --names host-9 --to edge --when-free
"""


@new_command(epilog=EXAMPLE, options_metavar="--names A,B --to TYPE [OPTIONS]")
@pool_options.needed_names
@option(
    "--to",
    required=True,
    type=check_own_type,
    metavar="TYPE",
    shell_complete=options.complete_types,
    help="The pool that they are to be in.",
)
@option("--when-free", is_flag=True, help="Have the release of what is held move it.")
@pool_options.quiet
@options.backend
def command(*, names: str, to: str, when_free: bool, quiet: bool, backend: str | None) -> None:
    """Move resources to another pool, each in one step.

    All that are named move, or none where the backend can do that; else it says which did. Each is
    in one of the two pools at every instant. Held ones are refused (exit code 77), or, with
    --when-free, take no new holder and move when they are released, unless they are moved to the
    pool where they are before that. Whoever waits for one there may get it at once.
    """
    wanted = pool_options.distinct_names(names)
    memberships = MembershipService(open_service(backend))
    before, after, _ = memberships.move(wanted, to, when_free=when_free)
    moved = [new.name for old, new in zip(before, after) if new.pool != old.pool]
    waiting = [new.name for new in after if new.moves_to == to]
    kept = [new.name for old, new in zip(before, after) if stays_after_all(old, new)]
    there = [
        new.name
        for old, new in zip(before, after)
        if new.pool == old.pool == to and new.name not in kept
    ]
    for what, which in (
        ("moved to", moved),
        ("to be moved, when released, to", waiting),
        ("not to be moved any more when released, but to stay in", kept),
        ("already in", there),
    ):
        if which:
            pool_options.say_done(quiet, f'{what} pool "{to}": {pool_options.described(which)}')
    pool_options.warn_of_unmet(memberships, *(old.pool for old in before))
