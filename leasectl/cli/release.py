"""``leasectl release``: give back leases, now or later."""

from __future__ import annotations

from typing import Literal

import click

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.output import emit_lines, note
from leasectl.cli.waiting import pause
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotFound
from leasectl.leases.delay import arm, leave_to_keeper
from leasectl.leases.release import release
from leasectl.leases.scope_test import unlist_stale
from leasectl.leases.service import Service
from leasectl.leases.targets import Listed, Targets
from leasectl.model import ReleaseTarget
from leasectl.text.durations import parse_duration
from leasectl.text.printable import printable

EXAMPLE = """\b
Examples:
  leasectl release --handle "$h"
  leasectl release --handle "$h" --delay 20m --detach
  leasectl release --scope test
"""


@click.command(
    epilog=EXAMPLE,
    options_metavar="(--handle H | --names A,B | --scope test | --all) [OPTIONS]",
)
@click.option(
    "--handle",
    metavar="H",
    shell_complete=options.complete_handles,
    help="What this handle holds; an empty one holds nothing.",
)
@click.option("-n", "--names", type=options.name_list, metavar="A,B", help="These resources.")
@click.option("--scope", type=click.Choice(["test"]), help="test: what $SHARED_DIR/leases lists.")
@click.option("--all", "everything", is_flag=True, help="All handles of this state directory.")
@click.option("--delay", type=parse_duration, metavar="D", help="Release after this long.")
@click.option(
    "--detach", is_flag=True, help="With --delay: have the keeper do it, and return at once."
)
@options.backend
def command(
    *,
    handle: str | None,
    names: tuple[str, ...] | None,
    scope: Literal["test"] | None,
    everything: bool,
    delay: float | None,
    detach: bool,
    backend: str | None,
) -> None:
    """Give back leases and print the names released.

    What is released already, by whomever, is left alone: the exit code is 0 and nothing is
    printed. What a delayed release means is fixed when it is asked for: if the handle has been
    reacquired since, nothing happens. A handle that still waits for its lease stops waiting.
    """
    if sum((handle is not None, names is not None, scope is not None, everything)) != 1:
        raise InvalidRequest("say what to release: one of --handle, --names, --scope test or --all")
    if detach and delay is None:
        raise InvalidRequest("--detach goes with --delay")
    service = open_service(backend, for_handles=True)
    listed = Listed([], [], [], [])
    if handle is not None:
        targets = Targets(service).of_path(handle)
    elif names is not None:
        targets = Targets(service).of_names(names)
    elif scope is not None:
        listed = Targets(service).of_scope_test()
        targets = listed.targets
    else:
        targets = Targets(service).of_everything()
    if detach and delay is not None:
        for target in targets:
            arm(service, target, delay)
        return
    if delay:
        _wait(delay)
    _release(service, targets)
    unlist_stale(service, listed.stale)
    if listed.foreign:
        note(
            f"{', '.join(listed.foreign)}: not released, as somebody else holds that by now; "
            "no longer listed in SHARED_DIR"
        )
    if listed.unknown:
        raise NotFound(
            f"no resource {printable(', '.join(listed.unknown))}, which stays listed in "
            "SHARED_DIR; if it is another backend's, name that with --backend"
        )


def _wait(seconds: float) -> None:
    """Sleep; a signal ends this process with nothing released."""
    pause(seconds, ())


def _release(service: Service, targets: list[ReleaseTarget]) -> None:
    """Release as much as can be; what failed is told last."""
    failed: LeaseError | None = None
    for target in targets:
        try:
            emit_lines(release(service, target))
        except BackendUnreachable as error:
            emit_lines(error.released)
            if leave_to_keeper(service, target):
                error.args = (f"{error}; the keeper goes on trying to release it",)
            failed = failed or error
        except LeaseError as error:
            failed = failed or error
    if failed is not None:
        raise failed
