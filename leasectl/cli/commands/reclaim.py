"""``leasectl reclaim``: take leases back from holders that are ready to give them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.completion_values import property_keys_like
from leasectl.cli.context import open_service
from leasectl.cli.described import OUTPUT, WAITING, WHAT, option
from leasectl.cli.shown.output import emit_json, emit_lines, note
from leasectl.cli.shown.reclaim_progress import ReclaimProgress, run, show_plan
from leasectl.engines import refusals
from leasectl.errors import InvalidRequest, TooFewFreed
from leasectl.leases.service import Service
from leasectl.reclaim.plan import Wanted, check_wanted
from leasectl.reclaim.taking_back import Listener, Outcome, open_ground, take_back
from leasectl.text.durations import format_duration, parse_duration
from leasectl.text.naming import check_name
from leasectl.text.wording import counted

EXAMPLE = """\b
Examples:
  leasectl reclaim azure--install --excess 2 --dry-run
  leasectl reclaim azure--install --names azure--install--00
  leasectl reclaim azure--install --held-longer-than 6h --delay 10m -w 5m
"""


def _complete_property_keys(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the keys of what is so of resources, to a shell that completes a word."""
    return property_keys_like(incomplete, ctx)


@new_command(
    epilog=EXAMPLE,
    options_metavar="POOL (--excess N | --names A,B | --held-longer-than D) [OPTIONS]",
)
@options.one_type("The pool to take from; it may also stand without -t.", group=WHAT, needed=True)
@option(
    "--excess",
    group=WHAT,
    type=int,
    metavar="N",
    help="N leases, whichever: of the handle with most unused names first, as many as it takes. "
    "With --follow, N at a time.",
)
@option(
    "--names",
    group=WHAT,
    metavar="A,B",
    shell_complete=options.complete_names,
    help="What is held of these resources.",
)
@option(
    "--held-longer-than",
    "longer_than_seconds",
    group=WHAT,
    type=parse_duration,
    metavar="D",
    help="What has been held for longer than this, like 6h.",
)
@option(
    "--group-by",
    group=WHAT,
    type=check_name,
    metavar="K",
    shell_complete=_complete_property_keys,
    help="With --excess: all resources with one value of the property K count as one handle.",
)
@pool_options.delay
@pool_options.wait
@option(
    "--follow",
    "follows",
    group=WAITING,
    is_flag=True,
    help="Go on, until interrupted, with what is in excess by then.",
)
@option(
    "--dry-run", is_flag=True, group=OUTPUT, help="Say what would be asked for, and why; no more."
)
@options.json_output
@options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    excess: int | None,
    names: str | None,
    longer_than_seconds: float | None,
    group_by: str | None,
    delay_seconds: float,
    wait_seconds: float | None,
    follows: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    backend: str | None,
) -> None:
    """Ask holders to return leases that they don't use.

    What is in excess is marked once it has been so for --delay. Its holder answers: by itself, with
    --on-reclaim of acquire and run, or with leasectl answer. A lease that is in use ("leasectl
    use") can't become ready, and one that is ready can't be used. What is ready is freed, and its
    name printed; no answer is none, and leaves the lease to its holder.

    If fewer come back than were to, the exit code is 75. The N of --excess counts from when this
    starts, and names are printed as they are freed: whoever starts it again counts again. Marks
    that are there already, of another reclaim or of one that was killed, are adopted with their
    answers, but all delays begin anew. However this ends, its marks are taken off; if it is killed,
    each ends by itself after --delay and -w together.
    """
    wanted = check_wanted(
        Wanted(
            excess,
            None if names is None else frozenset(pool_options.distinct_names(names)),
            longer_than_seconds,
            delay_seconds=delay_seconds,
            wait_seconds=delay_seconds if wait_seconds is None else wait_seconds,
            group_by=group_by,
            follows=follows,
        )
    )
    if group_by is not None and excess is None:
        raise InvalidRequest("--group-by says which come first, so it goes with --excess")
    if dry_run and follows:
        raise InvalidRequest("--dry-run looks once: leave out --follow, or --dry-run")
    service = open_service(backend)
    _check_names(service, pool_type, wanted)
    if dry_run:
        show_plan(open_ground(service, pool_type), wanted, as_json=as_json)
        return
    outcome = _take_back(service, pool_type, wanted, as_json=as_json, quiet=quiet)
    if as_json:
        emit_json({"freed": list(outcome.freed), "missing": outcome.missing})
    if outcome.missing:
        raise _too_few(pool_type, wanted, outcome)
    if not outcome.freed and not as_json and not quiet:
        note(f'nothing in pool "{pool_type}" was to be taken back')


def _check_names(service: Service, pool_type: str, wanted: Wanted) -> None:
    (pool,) = service.pools.pools(pool_type)
    there = {each.name for each in pool.resources}
    for name in sorted(wanted.names or ()):
        if name not in there:
            raise refusals.no_resource(pool_type, name)


def _take_back(
    service: Service, pool_type: str, wanted: Wanted, *, as_json: bool, quiet: bool
) -> Outcome:
    progress = ReclaimProgress(pool_type, quiet=quiet)

    def freed(names: Sequence[str]) -> None:
        progress.line.clear()
        if not as_json:
            emit_lines(tuple(names))
        elif wanted.follows:
            emit_json({"freed": list(names)})

    listener = Listener(freed, progress.note, progress.line.warn)
    return run(take_back(open_ground(service, pool_type), wanted, listener), progress, prints=True)


def _too_few(pool_type: str, wanted: Wanted, outcome: Outcome) -> TooFewFreed:
    all_of_them = outcome.missing + len(outcome.freed)
    return TooFewFreed(
        f'{outcome.missing} of {counted(all_of_them, "lease")} in pool "{pool_type}" could not be '
        f"taken back: in use, kept, or not answered for in {format_duration(wanted.wait_seconds)}; "
        f"see who holds them with: leasectl status -t {pool_type}"
    )
