"""``leasectl reclaim``: take leases back from holders that agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.rendering.output import emit_json, emit_lines, note
from leasectl.cli.rendering.reclaim_progress import ReclaimProgress, run, show_plan
from leasectl.errors import InvalidRequest, TooFewFreed
from leasectl.leases.service import Service
from leasectl.reclaim.plan import Wanted, check_wanted
from leasectl.reclaim.taking_back import Listener, Outcome, check_names, open_ground, take_back
from leasectl.text.naming import check_name
from leasectl.text.wording import counted


@new_command(
    options_metavar="POOL (--excess N | --names A,B | --held-longer-than D) [OPTIONS]",
)
@options.one_type(
    "The pool to take from; -t itself may be omitted.", group="Leases to reclaim", needed=True
)
@option(
    "--excess N",
    "Take back N unused leases, first from the handle with most unused names. With --follow, "
    "N at a time.",
    group="Leases to reclaim",
)
@option("--names A,B", "Take back the leases of these resources.", group="Leases to reclaim")
@option(
    "--held-longer-than D",
    "Take back leases held for longer than this, like 6h.",
    to="longer_than_seconds",
    group="Leases to reclaim",
)
@option(
    "--group-by K",
    "With --excess, group unused leases by their value of property K instead of by handle, and "
    "take first from the largest group.",
    type=check_name,
    completed_from="property_keys",
    group="Leases to reclaim",
)
@option(
    "--until-free N",
    "With --excess, ask only while fewer than N resources of the pool are free.",
    group="Leases to reclaim",
)
@option(
    "--leave-unused N",
    "With --excess, leave N unused names to each handle (or each value of --group-by).",
    group="Leases to reclaim",
    default=0,
)
@pool_options.delay
@pool_options.wait
@option("--follow", "Keep reclaiming until interrupted.", to="follows", group="Waiting")
@option("--dry-run", "Show what would be asked for, and why.", group="Output")
@options.json_output
@options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    names: str | None,
    delay_seconds: float,
    wait_seconds: float | None,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    backend: str | None,
    **wanted_back: Any,
) -> None:
    """Ask holders to return leases that they don't use.

    A lease is marked once it has been unused for --delay. Uses that are recorded on another machine
    aren't seen here. A lease in use there may be marked, too, but its holder keeps it. A holder
    answers a mark as --on-reclaim of acquire and run says, or with leasectl answer. A lease that
    the holder gives back is ready: it can no longer be used, it is freed, and its resource's name
    is printed. A lease in use (leasectl use) can't become ready. Without an answer the lease stays
    with its holder.

    If fewer leases come back than wanted, the exit code is 75, and stderr gives the reason for each
    resource that wasn't freed. --excess N takes back N leases each time this command is started;
    when you restart it, subtract the leases that it has printed. --excess N --follow goes
    on until it is interrupted, N leases at a time; limit it with --until-free or --leave-unused.

    When you restart this command, all delays begin again. A lease that is marked already isn't
    asked again: if the answer is ready, it is freed --delay after it was marked. At its end this
    command removes its marks. If it is killed, each mark expires after --delay plus -w.

    \b
    Examples:
      leasectl reclaim azure--install --excess 2 --dry-run
      leasectl reclaim azure--install --names azure--install--00
      leasectl reclaim azure--install --held-longer-than 6h --delay 10m -w 5m
    """
    wanted = check_wanted(
        Wanted(
            names=None if names is None else frozenset(pool_options.distinct_names(names)),
            delay_seconds=delay_seconds,
            wait_seconds=delay_seconds if wait_seconds is None else wait_seconds,
            **wanted_back,
        )
    )
    if wanted.group_by is not None and wanted.excess is None:
        raise InvalidRequest("--group-by needs --excess")
    if dry_run and wanted.follows:
        raise InvalidRequest("--dry-run can't be combined with --follow")
    service = open_service(backend)
    check_names(service, pool_type, wanted.names or ())
    if dry_run:
        show_plan(open_ground(service, pool_type), wanted, as_json=as_json)
        return
    outcome = _take_back(service, pool_type, wanted, as_json=as_json, quiet=quiet)
    if as_json:
        not_freed = [each._asdict() for each in outcome.not_freed]
        emit_json(
            {"freed": list(outcome.freed), "missing": outcome.missing, "not_freed": not_freed}
        )
    elif outcome.missing or not quiet:
        for each in outcome.not_freed:
            note(f"{each.name}: {each.reason}")
    if outcome.missing:
        raise _too_few(pool_type, outcome)
    if not outcome.freed and not as_json and not quiet:
        note(f'no lease of pool "{pool_type}" had to be taken back')


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


def _too_few(pool_type: str, outcome: Outcome) -> TooFewFreed:
    all_of_them = outcome.missing + len(outcome.freed)
    return TooFewFreed(
        f'{outcome.missing} of {counted(all_of_them, "lease")} of pool "{pool_type}" not taken '
        f"back; see the holders with: leasectl status -t {pool_type}"
    )
