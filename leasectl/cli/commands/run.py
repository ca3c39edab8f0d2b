"""``leasectl run``: run a command under a lease."""

from __future__ import annotations

import click

from leasectl.cli import options
from leasectl.cli.command import Command, new_command
from leasectl.cli.context import check_request, given_environment, may_do_without, open_service
from leasectl.cli.described import ATTEMPTS, ENDING, option
from leasectl.cli.shown.waiting import reported, sleep_jitter, warn_of_endless_wait
from leasectl.errors import InvalidRequest, NoLease
from leasectl.run.plan import OnLost, Plan
from leasectl.run.runner import Runner
from leasectl.system.signals import die_of
from leasectl.text.printable import printable
from leasectl.typed.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.leases.service import Service
    from leasectl.model import Request

EXAMPLE = """\b
Example:
  leasectl run azure--install -w 2h --optional --release-after 20m \\
    --attempts 5 --retry-on 4 -- openshift-install create cluster
"""


_HELP = frozenset(("-h", "--help"))
_WITH_SEPARATOR = "leasectl run TYPE -- CMD"


class RunCommand(Command):
    """Takes the command line apart: options and TYPE before ``--``, the command behind it.

    With ``-t`` the command may begin at the first word, too, and a ``--`` further on is its own.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, argv = self.divided(ctx, args)
        rest = super().parse_args(ctx, args)
        if not argv and not ctx.resilient_parsing:
            raise click.MissingParameter(ctx=ctx, param_hint="'CMD...'", param_type="argument")
        ctx.params["argv"] = tuple(argv or ())
        return rest

    def divided(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str] | None]:
        """The words up to the command, and the command; None where nothing says that it begins."""
        ctx.allow_interspersed_args = False  # it is the first word that is no option's
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.allow_interspersed_args = True
        words = given.get("type_words")
        first = len(args) - (len(words) if isinstance(words, (list, tuple)) else 0)
        if args[:first][-1:] == ["--"]:
            return args[: first - 1], args[first:]
        if "pool_types" in given:
            return args[:first], args[first:] or None
        if "--" in args[first:]:
            separator = args.index("--", first)
            return args[:separator], args[separator + 1 :]
        helped = _HELP.intersection(args[first:])
        if first < len(args) and not helped and not ctx.resilient_parsing:
            raise click.UsageError(f"put -- between TYPE and what to run: {_WITH_SEPARATOR}", ctx)
        return args, None


def words_of_command(args: list[str]) -> int | None:
    """How many words of the command have been typed, to complete the next; None before it."""
    assert isinstance(command, RunCommand)
    argv = command.divided(click.Context(command, resilient_parsing=True), args)[1]
    return None if argv is None else len(argv)


def exit_codes(text: str) -> tuple[int, ...]:
    """Read exit codes with commas between them; InvalidRequest when they are none."""
    codes = text.split(",")
    if not all(code.isdecimal() and int(code) <= 255 for code in codes):
        raise InvalidRequest(f'"{printable(text)}" is no list of exit codes; write it like 4,75')
    return tuple(map(int, codes))


@new_command(RunCommand, epilog=EXAMPLE, options_metavar="TYPE [OPTIONS] -- CMD...")
@options.request_options
@options.wait
@options.conflict_exit_code
@options.optional
@options.jitter
@options.start_jitter
@option(
    "--attempts",
    group=ATTEMPTS,
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Start the command at most this often, each time under a new lease.",
)
@option(
    "--retry-on",
    group=ATTEMPTS,
    type=exit_codes,
    multiple=True,
    metavar="CODES",
    help="Exit codes after which there is a further attempt, like 4 or 4,75; may be repeated.",
)
@option(
    "--before-retry",
    group=ATTEMPTS,
    metavar="CMD",
    help="A shell command to run before each further attempt, while no lease is held; if it fails, "
    "there is no further attempt.",
)
@option(
    "--on-reclaim-command",
    group=ENDING,
    metavar="CMD",
    help="A shell command that decides that instead; it gets the names as arguments ($@). 0: what "
    "of it isn't in use is given back; another status: nothing.",
)
@option(
    "--on-lost",
    group=ENDING,
    type=click.Choice(["term", "kill", "ignore"]),
    default="term",
    show_default=True,
    help="What the command gets when its lease is lost; a KILL follows a TERM it doesn't heed.",
)
@options.quiet
@options.backend
def command(
    *,
    wait_seconds: float | None,
    conflict_code: int | None,
    jitter_seconds: float,
    start_jitter_seconds: float,
    attempts: int,
    retry_on: tuple[tuple[int, ...], ...],
    before_retry: str | None,
    on_reclaim_command: str | None,
    on_lost: OnLost,
    optional: bool,
    quiet: bool,
    backend: str | None,
    argv: tuple[str, ...],
    **wanted: Any,
) -> int:
    """Run a command under a lease, and end as it ended.

    Waits for the lease, first come, first served, but the higher --priority before the lower;
    runs the command; releases the lease when the command has ended, if not earlier. If leasectl
    itself is killed, the lease follows the command. Signals are passed on.

    \b
    The command finds in its environment:
      LEASECTL_HANDLE   the path of its handle
      LEASECTL_NAMES    the names of what it holds, with commas between them
      LEASECTL_TYPE     which of the types it was
      LEASECTL_FENCE    a number for each name, larger for whoever holds it later
      LEASECTL_ATTEMPT  1 the first time, 2 for the second of --attempts
      LEASECTL_PROPERTIES      what it holds is, as JSON by name
      LEASECTL_PROPERTY_<KEY>  of one lease, each: KEY in capitals, _ for . and -
    Without a lease, as --optional allows, only LEASECTL_ATTEMPT is set.
    """
    if bool(retry_on) != (attempts > 1):
        raise InvalidRequest("--attempts and --retry-on go together")
    if before_retry is not None and not retry_on:
        raise InvalidRequest("--before-retry goes with --attempts and --retry-on")
    request = options.make_request(**wanted)
    if on_reclaim_command is not None:
        request = _answered_by_command(request)
    if request.priority:
        from leasectl.cli.priority import without_vain_priority

        request = without_vain_priority(request, backend, quiet=quiet)
    check_request(request, wait_seconds, backend)
    if optional:
        warn_of_endless_wait(wait_seconds, quiet=quiet)
    plan = Plan(
        command=argv,
        request=request,
        attempts=attempts,
        retry_on=frozenset(code for codes in retry_on for code in codes),
        before_retry=before_retry,
        on_reclaim=on_reclaim_command,
        on_lost=on_lost,
        start_jitter_seconds=start_jitter_seconds,
        optional=may_do_without(backend, optional=optional),
        environ=given_environment(),
    )
    try:
        opened: list[Service] = []

        def events() -> EventLog | None:
            return opened[0].events if opened else None

        def open_once() -> Service:
            opened.append(open_service(backend))
            return opened[0]

        with reported(request, wait_seconds, (), events=events, quiet=quiet) as waiting:
            runner = Runner(
                open_once,
                plan,
                before_acquire=lambda ends: sleep_jitter(jitter_seconds, ends, quiet=quiet),
                warn=waiting.warn,
            )
            ending = runner.run(waiting.patience, got=waiting.got)
    except NoLease as error:
        error.exit_code = error.exit_code if conflict_code is None else conflict_code
        raise
    if ending.signum is not None:
        die_of(ending.signum)
    return ending.code or 0


def _answered_by_command(request: Request) -> Request:
    """A request of which nobody answers but the command of this `run`."""
    source = click.get_current_context().get_parameter_source("on_reclaim")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise InvalidRequest("--on-reclaim and --on-reclaim-command: give one of them")
    return request._replace(on_reclaim="answer")
