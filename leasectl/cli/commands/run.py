"""``leasectl run``: run a command under a lease."""

from __future__ import annotations

from typing import Any

import click

from leasectl.cli import options
from leasectl.cli.command import Command, new_command, was_given
from leasectl.cli.context import check_request, given_environment, may_do_without, open_service
from leasectl.cli.described import Between, option
from leasectl.cli.groups import TOLD
from leasectl.cli.rendering.waiting import Waiting, WaitOptions
from leasectl.errors import InvalidRequest, NoLease
from leasectl.leases.opening import default_priority, process_named_by
from leasectl.leases.request import make_request
from leasectl.leases.service import Service
from leasectl.run.plan import OnLost, Plan
from leasectl.run.runner import Runner
from leasectl.system.callers import watch_guard
from leasectl.system.signals import die_of
from leasectl.text.wording import printable

_HELP = frozenset(("-h", "--help"))
_WITH_SEPARATOR = "leasectl run POOL -- CMD"
_NO_COMMAND = "no command given; add: -- CMD"


class RunCommand(Command):
    """Split the command line at ``--`` into options and pool, and the command.

    With ``-t`` the command may begin at the first word, too. A ``--`` behind an option of the
    command is its own; with only words before it, one of them may be meant as a pool.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, argv = self.divided(ctx, args)
        rest = super().parse_args(ctx, args)
        if not argv and not ctx.resilient_parsing:
            raise click.UsageError(_NO_COMMAND, ctx)
        ctx.params["argv"] = tuple(argv or ())
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Environment of the command"):
            formatter.write_dl(TOLD)

    def divided(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str] | None]:
        """Split the words into those before the command, and the command, if any."""
        ctx.allow_interspersed_args = False  # it is the first word that is no option's
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.allow_interspersed_args = True
        words = given.get("type_words")
        first = len(args) - (len(words) if isinstance(words, (list, tuple)) else 0)
        if args[:first][-1:] == ["--"]:
            return args[: first - 1], args[first:]
        separator = args.index("--", first) if "--" in args[first:] else None
        if "pool_types" in given:
            before = () if separator is None or ctx.resilient_parsing else args[first:separator]
            if before and not any(each.startswith("-") for each in before):
                raise click.UsageError(
                    f'"{before[0]}" could be a pool or the command; put -- before the command, and '
                    "name each pool with -t",
                    ctx,
                )
            return args[:first], args[first:] or None
        if separator is not None:
            return args[:separator], args[separator + 1 :]
        helped = _HELP.intersection(args[first:])
        if len(args) - first == 1 and not helped and not ctx.resilient_parsing:
            raise click.UsageError(_NO_COMMAND, ctx)
        if first < len(args) and not helped and not ctx.resilient_parsing:
            raise click.UsageError(
                f"put -- between the pool and the command: {_WITH_SEPARATOR}", ctx
            )
        return args, None


def words_of_command(args: list[str]) -> int | None:
    """Return how many words of the command have been typed; None before the command."""
    assert isinstance(command, RunCommand)
    argv = command.divided(click.Context(command, resilient_parsing=True), args)[1]
    return None if argv is None else len(argv)


def exit_codes(text: str) -> tuple[int, ...]:
    """Read a comma-separated list of exit codes; raise InvalidRequest if it is invalid."""
    codes = text.split(",")
    if not all(code.isdecimal() and int(code) <= 255 for code in codes):
        raise InvalidRequest(f'invalid list of exit codes "{printable(text)}"; write it like 4,75')
    return tuple(map(int, codes))


@new_command(RunCommand, options_metavar="POOL [OPTIONS] -- CMD...")
@options.request_options
@options.wait_options
@option(
    "--guard-pid PID",
    "Stop waiting when this process ends; in a script, use $$. Default: the parent process, "
    "unless run was started with nohup or setsid.",
    group="Waiting",
)
@option(
    "--attempts N",
    "Run the command up to N times, each time with a new lease; needs --retry-on.",
    type=Between(1),
    group="Retries",
    default=1,
    show_default=True,
)
@option(
    "--retry-on CODES",
    "Retry after these exit codes, like 4 or 4,75; may be repeated. Needs --attempts.",
    type=exit_codes,
    group="Retries",
    multiple=True,
)
@option(
    "--before-retry CMD",
    "Run this shell command before each retry, while no lease is held; if it fails, don't retry.",
    group="Retries",
)
@option(
    "--on-reclaim-command CMD",
    "Answer a reclaim with this shell command; its arguments ($@) are the resources. Exit "
    "status 0: release those that aren't in use; any other: keep all.",
    group="End of the lease",
)
@option(
    "--on-lost [term|kill|ignore]",
    "What to do with the command when its lease is lost: send TERM, and KILL if it continues; "
    "send KILL; or let it run.",
    group="End of the lease",
    default="term",
    show_default=True,
)
@options.quiet
@options.backend
def command(
    *,
    guard_pid: int | None,
    attempts: int,
    retry_on: tuple[tuple[int, ...], ...],
    before_retry: str | None,
    on_reclaim_command: str | None,
    on_lost: OnLost,
    backend: str | None,
    argv: tuple[str, ...],
    **wanted: Any,
) -> int:
    """Run a command while holding a lease, and exit with its status.

    Requests are served by priority, then in order of arrival. The lease is released when the
    command has ended, or earlier by --release-after. If leasectl itself is killed, the lease is
    kept until the command has ended. Signals are forwarded to the command.

    If --optional continues without a lease, LEASECTL_ATTEMPT is set, and the other variables below
    aren't.

    \b
    Example:
      leasectl run azure--install -w 2h --optional --release-after 20m \\
        --attempts 5 --retry-on 4 -- openshift-install create cluster
    """
    if bool(retry_on) != (attempts > 1):
        missing = "--attempts of 2 or more" if retry_on else "--retry-on"
        given = "--retry-on" if retry_on else "--attempts"
        raise InvalidRequest(f"{given} needs {missing}, for example: --attempts 3 --retry-on 4")
    if before_retry is not None and not retry_on:
        raise InvalidRequest("--before-retry needs --attempts and --retry-on")
    waits = WaitOptions.pop(wanted)
    if on_reclaim_command is not None:
        if was_given("on_reclaim"):
            raise InvalidRequest("use either --on-reclaim or --on-reclaim-command")
        wanted["on_reclaim"] = "answer"
    if wanted["priority"] is None:
        wanted["priority"] = default_priority(backend, waits.tell)
    request = make_request(**wanted)
    check_request(request, waits.wait_seconds, backend)
    waits.warn_of_endless_wait()
    plan = Plan(
        command=argv,
        request=request,
        attempts=attempts,
        retry_on=frozenset(code for codes in retry_on for code in codes),
        before_retry=before_retry,
        on_reclaim=on_reclaim_command,
        on_lost=on_lost,
        start_jitter_seconds=waits.start_jitter_seconds,
        optional=may_do_without(backend, optional=waits.optional),
        environ=given_environment(),
    )
    service: Service | None = None

    def open_once() -> Service:
        nonlocal service
        service = open_service(backend)
        return service

    try:
        guard = None if guard_pid is None else process_named_by("--guard-pid", guard_pid)
        guarding = watch_guard(guard)
        with Waiting(request, waits, guarding, lambda: service) as waiting:
            runner = Runner(
                open_once,
                plan,
                before_acquire=lambda ends: waits.sleep_jitter((*ends, *guarding)),
                warn=waiting.line.warn,
            )
            ending = runner.run(waiting.patience, got=waiting.got)
    except NoLease as error:
        waits.set_exit_code(error)
        raise
    if ending.signum is not None:
        die_of(ending.signum)
    return ending.code or 0
