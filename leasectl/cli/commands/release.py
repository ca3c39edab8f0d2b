"""``leasectl release``: give back leases, now or later."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Literal

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import option, plain_command, word
from leasectl.cli.rendering.output import ReleasedForm, emit_lines, emit_released, note, when_due
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.leases.release import arm, release_each
from leasectl.leases.service import Expected, Service, unlist_stale
from leasectl.leases.targets import (
    Listed,
    targets_of_everything,
    targets_of_handles,
    targets_of_names,
    targets_of_scope_test,
    unknown_here,
    whole_names,
)
from leasectl.model import ReleaseTarget
from leasectl.system.poll import pause
from leasectl.text.durations import DurationRange, draw_between, drawn_between, parse_duration_range
from leasectl.text.wording import counted, listed


@plain_command(
    options_metavar="(H... | --names A,B | --scope test | --all | --waiting) [OPTIONS]",
)
@option(
    "--handle H",
    "The leases of this handle: the path that acquire printed, or its last part; may be "
    "repeated. An empty H releases nothing. --handle itself may be omitted.",
    to="handles",
    group="Leases to release",
    multiple=True,
)
@word("handle_words", "H", stands_for="handles", nargs=-1)
@option(
    "-n, --names A,B",
    "The leases of these resources; may be repeated. The short form in the table of status, "
    "like --03 for azure--install--03, works, too.",
    to="lists_of_names",
    type=options.name_list,
    completed_from="released_names",
    group="Leases to release",
    multiple=True,
)
@option("--scope [test]", "The leases listed in $SHARED_DIR/leases.", group="Leases to release")
@option(
    "--all",
    "All leases of your job and build in this state directory; with --force, of all jobs.",
    to="everything",
    group="Leases to release",
)
@option(
    "--delay D",
    "Release after this time, like 20m, or 18m-22m for a random time in that range.",
    to="delay_range",
    type=parse_duration_range,
    group="End of the lease",
)
@option(
    "--detach",
    "With --delay: return at once; the keeper, leasectl's background process, releases.",
    group="End of the lease",
)
@option(
    "--force",
    "With --names or --all: release leases of other jobs, too.",
    group="Leases to release",
)
@option(
    "--waiting",
    "Withdraw the waiting requests of --holder ID, on any machine; for another job's "
    "requests, add --force.",
    group="Leases to release",
)
@option(
    "--now",
    "With --force: free the lease at once, even if the holder may still use the resource.",
    to="at_once",
    group="Leases to release",
)
@option(
    "--holder ID",
    "With --names: release only if ID still holds the lease, else exit with 77. With --waiting: "
    "withdraw the requests of ID. ID is JOB/BUILD, a handle, or a holder_identity that status "
    "prints with --json.",
    group="Leases to release",
)
@option(
    "--fence N",
    "With one name: release only if its fencing token is still N, else exit with 77.",
    group="Leases to release",
)
@option(
    "--reason TEXT",
    "With --force or --waiting: a reason to show to the holder or waiter.",
    group="Leases to release",
)
@options.quiet
@options.json_output
@options.backend
def command(
    *,
    handles: tuple[str, ...],
    lists_of_names: tuple[tuple[str, ...], ...],
    scope: Literal["test"] | None,
    everything: bool,
    delay_range: DurationRange | None,
    detach: bool,
    force: bool,
    at_once: bool,
    waiting: bool,
    holder: str | None,
    fence: int | None,
    reason: str | None,
    quiet: bool,
    as_json: bool,
    backend: str | None,
) -> None:
    """Release leases and print the names of their resources.

    If a lease was released already, nothing is printed and the exit code is 0. If the handle still
    waits for its lease, it stops waiting. A handle counts as permission: with it you can release
    the lease of another job in the same state directory.

    If the handle is reacquired during the delay, a release without --detach leaves the new lease
    alone. With --detach, the delay starts again at the grant of the new lease. To change the time,
    release again with --delay and --detach. A delay doesn't change a ttl; to make that longer:
    leasectl renew H --ttl D

    With --names you can release what your own job and build hold. With --force you can release any
    lease: the holder's leasectl run stops its command (exit code 79), and the resource is free once
    the command has ended, or the lease's ttl has passed. If the holder uses neither leasectl run
    nor a ttl, the resource is free at once: stop the processes that use it. With --now the resource
    is free at once in any case, for example when the holder's machine is gone. Make sure that
    nothing still uses the resource, or that it rejects older fencing tokens.

    \b
    Examples:
      leasectl release "$h"
      leasectl release "$h" --delay 20m --detach
      leasectl release --scope test
      leasectl release --names azure--install--00 --force --reason "stuck"
    """
    given = sum(map(bool, (handles, lists_of_names, scope, everything, waiting)))
    if given != 1:
        problem = "give only one of these" if given else "say what to release"
        raise InvalidRequest(f"{problem}: a handle, --names, --scope test, --all or --waiting")
    form: ReleasedForm = "json" if as_json else "nothing" if quiet else "names"
    if waiting:
        if holder is None or fence is not None or delay_range is not None or detach or at_once:
            raise InvalidRequest(
                "--waiting needs --holder, and can be combined only with --force and --reason"
            )
        from leasectl.cli.rendering.release_forced import withdraw_and_tell

        withdraw_and_tell(holder, reason or "", backend, force=force, form=form)
        return
    if detach and delay_range is None:
        raise InvalidRequest("--detach needs --delay")
    names = [name for each in lists_of_names for name in each]
    if (holder is not None or fence is not None) and not lists_of_names:
        raise InvalidRequest("--holder and --fence need --names")
    if fence is not None and len(set(names)) != 1:
        raise InvalidRequest(f"--fence {fence} applies to one resource; give --names one name")
    expected = Expected(holder, fence)
    if force or at_once or reason is not None:
        if not force:
            raise InvalidRequest(f"{'--now' if at_once else '--reason'} needs --force")
        if not (lists_of_names or everything) or delay_range is not None:
            raise InvalidRequest("--force needs --names or --all, and takes no --delay")
        from leasectl.cli.rendering.release_forced import release_all_and_tell, release_and_tell

        if everything:
            release_all_and_tell(reason or "", backend, at_once=at_once, form=form)
        else:
            release_and_tell(names, reason or "", backend, expected, at_once=at_once, form=form)
        return
    service = open_service(backend, for_handles=True)
    in_scope = Listed([], [], [], [])
    failed: LeaseError | None = None
    if handles:
        targets, failed = targets_of_handles(service, handles)
    elif lists_of_names:
        targets = targets_of_names(
            service,
            [*filter(None, whole_names(service, names).values())],
            only_here=backend is not None,
            expected=expected,
        )
        if not targets and not quiet:
            _tell_person(f"nothing to release: no lease of {listed(names)} found")
    elif scope is not None:
        in_scope = targets_of_scope_test(service)
        targets = in_scope.targets
    else:
        targets, others = targets_of_everything(service)
        if others:
            note(
                f"left {counted(len(others), 'handle')} that this job may not release: of another "
                "job, of leasectl once, or of leasectl serve; to release all: leasectl release "
                "--all --force"
            )
    delay = 0.0 if delay_range is None else draw_between(*delay_range)
    between = drawn_between(delay_range)
    if detach:
        armed = [each for each in targets if arm(service, each, delay, between=between)]
        if armed and not quiet:
            what = _named(service, armed)
            note(
                f"{what} will be released {when_due(delay)}; to change the time, release again "
                "with another --delay"
            )
        targets = []
    elif delay:
        # Nothing else shows the delay that was drawn from a range.
        _wait(delay, _tell_person if between is None else note)
    released: list[str] = []
    try:
        tell = emit_lines if form == "names" else released.extend
        release_each(service, targets, tell=tell, failed=failed)
    finally:
        if form == "json":
            emit_released(released, form)
    unlist_stale(service, in_scope.stale)
    if in_scope.foreign:
        note(
            f"{', '.join(in_scope.foreign)}: not released, because another job is the holder now; "
            "removed from the list in SHARED_DIR"
        )
    if in_scope.unknown:
        raise unknown_here(service, in_scope.unknown)


def _tell_person(text: str) -> None:
    """Print a line only at a terminal; scripts have asked for the release and know."""
    if sys.stderr.isatty():
        note(text)


def _named(service: Service, targets: Sequence[ReleaseTarget]) -> str:
    """What targets mean, for people: names, or the handle where it has none yet."""
    named: list[str] = []
    for target in targets:
        handle = service.current(target)
        named += target.names or (() if handle is None else handle.names) or (target.handle_id,)
    return listed(named)


def _wait(seconds: float, tell: Callable[[str], None]) -> None:
    """Say so, and sleep; a signal ends this process with nothing released."""
    tell(f"waiting to release {when_due(seconds)}; --detach leaves that to the keeper")
    pause(seconds, ())
