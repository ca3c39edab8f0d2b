"""``leasectl run``: run a command under a lease."""

from __future__ import annotations

import os
from typing import Any

import click

from leasectl.backends.kinds import either
from leasectl.cli import options
from leasectl.cli.context import check_request, open_service
from leasectl.cli.output import note
from leasectl.cli.waiting import reported, sleep_jitter, warn_of_endless_wait
from leasectl.errors import InvalidRequest, NoLease
from leasectl.run.plan import OnLost, Plan
from leasectl.run.runner import Runner
from leasectl.system.signals import die_of
from leasectl.text.printable import printable

EXAMPLE = """\b
Example:
  leasectl run -t azure--install -w 2h --optional --release-after 20m \\
    --attempts 5 --retry-on 4 -- openshift-install create cluster
"""


def exit_codes(text: str) -> tuple[int, ...]:
    """Read exit codes with commas between them; InvalidRequest when they are none."""
    codes = text.split(",")
    if not all(code.isdecimal() and int(code) <= 255 for code in codes):
        raise InvalidRequest(f'"{printable(text)}" is no list of exit codes; write it like 4,75')
    return tuple(map(int, codes))


@click.command(
    epilog=EXAMPLE,
    options_metavar="-t TYPE [OPTIONS] --",
    context_settings={"allow_interspersed_args": False},
)
@options.request_options
@options.wait
@options.conflict_exit_code
@options.jitter
@click.option(
    "--attempts",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Start the command at most this often, each time under a new lease.",
)
@click.option(
    "--retry-on",
    type=exit_codes,
    metavar="CODES",
    help="Exit codes after which there is a further attempt, like 4 or 4,75.",
)
@click.option(
    "--before-retry",
    metavar="CMD",
    help="A shell command to run before each further attempt, while no lease is held; if it fails, "
    "there is no further attempt.",
)
@click.option(
    "--on-lost",
    type=click.Choice(["term", "kill", "ignore"]),
    default="term",
    show_default=True,
    help="What the command gets when its lease is lost; a KILL follows a TERM it doesn't heed.",
)
@options.quiet
@options.backend
@click.argument("argv", nargs=-1, required=True, metavar="CMD...", type=click.UNPROCESSED)
def command(
    *,
    wait_seconds: float | None,
    conflict_code: int | None,
    jitter_seconds: float,
    attempts: int,
    retry_on: tuple[int, ...] | None,
    before_retry: str | None,
    on_lost: OnLost,
    optional: bool,
    quiet: bool,
    backend: str | None,
    argv: tuple[str, ...],
    **wanted: Any,
) -> int:
    """Run a command under a lease, and end as it ended.

    Waits for the lease, first come, first served; runs the command; releases the lease when the
    command has ended, if not earlier. The command finds LEASECTL_HANDLE, LEASECTL_NAMES,
    LEASECTL_TYPE and LEASECTL_FENCE in its environment. If leasectl itself is killed, the lease
    follows the command. Signals are passed on.
    """
    if bool(retry_on) != (attempts > 1):
        raise InvalidRequest("--attempts and --retry-on go together")
    if before_retry is not None and not retry_on:
        raise InvalidRequest("--before-retry goes with --attempts and --retry-on")
    request = options.make_request(**wanted)
    check_request(request, wait_seconds, backend)
    if optional:
        warn_of_endless_wait(wait_seconds, quiet=quiet)
    plan = Plan(
        command=argv,
        request=request,
        attempts=attempts,
        retry_on=retry_on or (),
        before_retry=before_retry,
        on_lost=on_lost,
        optional=optional,
        environ=dict(os.environ),
    )
    runner = Runner(
        lambda: open_service(backend),
        plan,
        before_acquire=lambda interrupts: sleep_jitter(jitter_seconds, interrupts),
        warn=note,
    )
    try:
        with reported(either(plan.request.types), wait_seconds, (), quiet=quiet) as patience:
            ending = runner.run(patience)
    except NoLease as error:
        error.exit_code = error.exit_code if conflict_code is None else conflict_code
        raise
    if ending.signum is not None:
        die_of(ending.signum)
    return ending.code or 0
