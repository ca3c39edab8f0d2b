"""``leasectl pool remove``: take resources out of a pool."""

from __future__ import annotations

import click

from leasectl.cli import options, pool_options, reclaim_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.errors import InvalidRequest, TooFewFreed
from leasectl.leases.service import Service
from leasectl.pools.memberships import MembershipService

EXAMPLE = """\b
Examples:
  leasectl pool remove azure--install --names azure--install--01
  leasectl pool remove azure--install --names azure--install--00 --when-ready
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.needed_names
@option("--force", is_flag=True, help="Take a held resource from its holder.")
@option(
    "--when-ready",
    is_flag=True,
    help="Take a held resource as soon as its holder is ready to give it back, as reclaim does.",
)
@reclaim_options.delay
@reclaim_options.wait
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    names: str,
    force: bool,
    when_ready: bool,
    delay_seconds: float,
    wait_seconds: float | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Take resources out of a pool: all that are named, or none.

    A resource that is held isn't removed (exit code 77) unless forced: then its holder has lost
    its lease, and a command under "leasectl run" is told so. Whose request can't be met without
    them is told to you; it waits on.

    With --when-ready those that are free go at once, and each of the others when its holder has
    answered a reclaim that it can. Until then they take no new holder, so nobody gets one in
    between. If some stay, the exit code is 75, and they take holders again, unless they took none
    before. If this is killed, they stay cordoned: run it again, or leasectl pool uncordon.
    """
    wanted = pool_options.distinct_names(names)
    if force and when_ready:
        raise InvalidRequest("--force takes it now, and --when-ready waits: name one of them")
    if not when_ready:
        _refuse_patience()
    service = open_service(backend)
    if when_ready:
        wait = delay_seconds if wait_seconds is None else wait_seconds
        removed, left = _remove_when_ready(service, pool_type, wanted, delay_seconds, wait, quiet)
    else:
        service.pools.remove_resources(pool_type, wanted, force=force)
        removed, left = wanted, ()
    if removed:
        pool_options.say_done(
            quiet, f'removed from pool "{pool_type}": {pool_options.described(removed)}'
        )
    pool_options.warn_of_unmet(MembershipService(service), pool_type)
    if left:
        raise TooFewFreed(
            f'still in pool "{pool_type}": {pool_options.described(left)}; in use, kept, or not '
            f"answered for; see who holds them with: leasectl status -t {pool_type}"
        )


def _refuse_patience() -> None:
    ctx = click.get_current_context()
    for parameter, written in (("delay_seconds", "--delay"), ("wait_seconds", "-w")):
        if ctx.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            raise InvalidRequest(f"{written} goes with --when-ready")


def _remove_when_ready(
    service: Service,
    pool_type: str,
    names: tuple[str, ...],
    delay_seconds: float,
    wait_seconds: float,
    quiet: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from leasectl.cli.shown.reclaim_progress import ReclaimProgress, run
    from leasectl.reclaim.opening import open_ground
    from leasectl.reclaim.removal import remove_when_ready
    from leasectl.reclaim.taking_back import Listener
    from leasectl.reclaim.wanted import Wanted, check_wanted

    wanted = check_wanted(
        Wanted(names=frozenset(names), delay_seconds=delay_seconds, wait_seconds=wait_seconds)
    )
    progress = ReclaimProgress(pool_type, quiet=quiet)
    listener = Listener(lambda _: progress.line.clear(), progress.note, progress.line.warn)
    ground = open_ground(service, pool_type)
    steps = remove_when_ready(ground, service.members, names, wanted, listener)
    return run(steps, progress, prints=False)
