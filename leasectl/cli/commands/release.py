"""``leasectl release``: give back leases, now or later."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import ENDING, RELEASED, OneOf, option, plain_handle_command, word
from leasectl.cli.shown.output import emit_json, emit_lines, note, when_due
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError
from leasectl.leases.release import release
from leasectl.leases.scope_test import unlist_stale
from leasectl.leases.service import Service
from leasectl.leases.targets import Listed, Targets
from leasectl.model import ReleaseTarget
from leasectl.text.durations import DurationRange, parse_duration_range
from leasectl.text.wording import followed_by, listed
from leasectl.typed.hints import TYPE_CHECKING, Callable, Literal

if TYPE_CHECKING:
    import click

EXAMPLE = """\b
Examples:
  leasectl release "$h"
  leasectl release "$h" --delay 20m --detach
  leasectl release --scope test
  leasectl release --names azure--install--00 --force --reason "stuck"
"""


def _complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer what can be released by name to a shell, of several the last."""
    from leasectl.cli.completion_values import last_in_list, released_names_like

    return last_in_list(incomplete, ctx, released_names_like)


@plain_handle_command(
    epilog=EXAMPLE,
    options_metavar="(H... | --names A,B | --scope test | --all) [OPTIONS]",
)
@option(
    "--handle",
    "handles",
    group=RELEASED,
    multiple=True,
    metavar="H",
    shell_complete=options.complete_handles,
    help="What this handle holds; an empty one holds nothing. May be repeated, or left out before "
    "H.",
)
@word(
    "handle_words",
    stands_for="handles",
    nargs=-1,
    metavar="H",
    shell_complete=options.complete_handles,
)
@option(
    "-n",
    "--names",
    "lists_of_names",
    group=RELEASED,
    type=options.name_list,
    multiple=True,
    metavar="A,B",
    shell_complete=_complete_names,
    help="These resources; may be repeated.",
)
@option("--scope", group=RELEASED, type=OneOf("test"), help="test: what $SHARED_DIR/leases lists.")
@option(
    "--all",
    "everything",
    group=RELEASED,
    is_flag=True,
    help="All handles of this state directory, but those of clients of serve here.",
)
@option(
    "--delay",
    "delay_range",
    group=ENDING,
    type=parse_duration_range,
    metavar="D",
    help="Release after this long. 18m-22m: a time in between that chance chooses.",
)
@option(
    "--detach",
    group=ENDING,
    is_flag=True,
    help="With --delay: have the keeper do it, and return at once.",
)
@option("--force", group=RELEASED, is_flag=True, help="With --names: whoever holds them.")
@option(
    "--reason",
    group=RELEASED,
    metavar="TEXT",
    help="With --force: shown to whoever loses the lease.",
)
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
    reason: str | None,
    as_json: bool,
    backend: str | None,
) -> None:
    """Give back leases and print the names released.

    What is released already, by whomever, is left alone: the exit code is 0 and nothing is
    printed. What a delayed release means is fixed when it is asked for: if the handle has been
    reacquired since, nothing happens. A handle that still waits for its lease stops waiting.
    To keep a lease longer, release it with --delay and --detach again: the new time counts. What
    runs out by a ttl is kept longer with: leasectl renew H --ttl D

    By name you release what your own job and build hold; with --force, whatever anybody holds.
    Its run is told at once and ends the command (exit code 79). The next in the queue gets the
    lease when that is done, or when the time of its last renewal is over; without run and --ttl
    at once, and what still uses it is for you to end.
    """
    if sum(map(bool, (handles, lists_of_names, scope, everything))) != 1:
        raise InvalidRequest("say what to release: one of --handle, --names, --scope test or --all")
    if detach and delay_range is None:
        raise InvalidRequest("--detach goes with --delay")
    names = [name for each in lists_of_names for name in each]
    if force or reason is not None:
        if not force:
            raise InvalidRequest("--reason goes with --force")
        if not lists_of_names or delay_range is not None:
            raise InvalidRequest("--force goes with --names, and is done at once")
        from leasectl.cli.shown.release_forced import release_and_tell

        release_and_tell(names, reason or "", backend, as_json=as_json)
        return
    service = open_service(backend, for_handles=True)
    in_scope = Listed([], [], [], [])
    absent: LeaseError | None = None
    if handles:
        targets, absent = _of_handles(service, handles)
    elif lists_of_names:
        targets = Targets(service).of_names(names, only_here=backend is not None)
    elif scope is not None:
        in_scope = Targets(service).of_scope_test()
        targets = in_scope.targets
    else:
        targets = Targets(service).of_everything()
    between = options.drawn_between(delay_range)
    delay = 0.0 if delay_range is None else delay_range.shortest
    tell = _tell_person
    if between is not None:
        from leasectl.leases.request import draw_between

        delay, tell = draw_between(*between), note  # nobody knows yet what chance has chosen
    if detach:
        from leasectl.leases.delay import arm

        armed = [each for each in targets if arm(service, each, delay, between=between)]
        if armed:
            what = _named(service, armed)
            tell(f"{what} will be released {when_due(delay)}, unless that is asked for again")
        targets = []
    elif delay:
        _wait(delay, tell)
    _release(service, targets, absent, as_json=as_json)
    unlist_stale(service, in_scope.stale)
    if in_scope.foreign:
        note(
            f"{', '.join(in_scope.foreign)}: not released, as somebody else holds that by now; "
            "no longer listed in SHARED_DIR"
        )
    if in_scope.unknown:
        from leasectl.leases.adoption import unknown_here

        raise unknown_here(service, in_scope.unknown)


def _tell_person(text: str) -> None:
    """Tell whoever sits at a terminal; scripts have asked for it and know."""
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
    # First, as Python may lose an interrupt that comes while it imports.
    from leasectl.cli.shown.waiting import pause

    tell(f"waiting to release {when_due(seconds)}; --detach leaves that to the keeper")
    pause(seconds, ())


def _of_handles(
    service: Service, handles: tuple[str, ...]
) -> tuple[list[ReleaseTarget], LeaseError | None]:
    """What handles mean, and why it isn't known of one of them: the others go back all the same."""
    targets: list[ReleaseTarget] = []
    failed: LeaseError | None = None
    for handle in dict.fromkeys(handles):
        try:
            targets += Targets(service).of_path(handle)
        except LeaseError as error:
            failed = failed or error
    return targets, failed


def _release(
    service: Service, targets: list[ReleaseTarget], failed: LeaseError | None, *, as_json: bool
) -> None:
    """Release as much as can be; what failed, or had failed before, is told last."""
    released: list[str] = []
    tell = released.extend if as_json else emit_lines
    for target in targets:
        try:
            tell(release(service, target))
        except BackendUnreachable as error:
            tell(error.released)
            from leasectl.leases.delay import leave_to_keeper

            if leave_to_keeper(service, target):
                error.args = (followed_by(error, "the keeper goes on trying to release it"),)
            failed = failed or error
        except LeaseError as error:
            failed = failed or error
    if as_json:
        emit_json({"released": released})
    if failed is not None:
        raise failed
