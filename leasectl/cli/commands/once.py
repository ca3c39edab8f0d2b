"""``leasectl once``: run a command once and share its result."""

from __future__ import annotations

import os
from typing import Any, Literal

import click

from leasectl.cli import options
from leasectl.cli.command import Command, new_command, was_given
from leasectl.cli.context import check_request, given_environment, open_service
from leasectl.cli.described import Between, option, word
from leasectl.cli.rendering.output import emit_bytes, note
from leasectl.cli.rendering.waiting import Waiting, WaitOptions
from leasectl.errors import InvalidRequest
from leasectl.once.results import Asked, Outcome, Terms, check_terms
from leasectl.once.work import Work, work_of
from leasectl.system.callers import watch_callers
from leasectl.system.signals import die_of
from leasectl.text.input_file import read_bytes
from leasectl.text.naming import check_key
from leasectl.text.wording import counted

_WITH_SEPARATOR = "leasectl once KEY -- CMD"
# The options that go with --list, --show and --forget, beside those of every command.
_WITH_RESULTS = {
    "lists": ("as_json",),
    "show": ("texts", "files", "as_json"),
    "forget": ("texts", "files"),
}


class OnceCommand(Command):
    """Parse options and KEY before ``--``, and the command behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, argv = divided(args)
        rest = super().parse_args(ctx, args)
        ctx.params["argv"] = tuple(argv or ())
        return rest


def divided(args: list[str]) -> tuple[list[str], list[str] | None]:
    """Split words into those before ``--`` and the command; None without ``--``."""
    if "--" not in args:
        return args, None
    separator = args.index("--")
    return args[:separator], args[separator + 1 :]


def words_of_command(args: list[str]) -> int | None:
    """Count the typed words of the command, to complete the next; None before ``--``."""
    argv = divided(args)[1]
    return None if argv is None else len(argv)


@new_command(OnceCommand, options_metavar="KEY [OPTIONS] -- CMD...")
@word("words", "", completed_from="work_keys", nargs=-1)
@option(
    "--input TEXT",
    "Part of the work's identity, beside KEY; shown to everybody. May be repeated; the order "
    "counts.",
    to="texts",
    group="Work",
    multiple=True,
)
@option(
    "--input-file FILE",
    "Like --input, with a file's content; only the file's name is shown. All files come after all "
    "--input, whatever the order of the options.",
    to="files",
    group="Work",
    multiple=True,
)
@option(
    "--keep D",
    "How long the result is kept for later callers.",
    to="keep_seconds",
    group="Result",
    default="24h",
    show_default=True,
)
@option(
    "--verify CMD",
    "A shell command. If it fails, the kept result is forgotten and the work is done again.",
    group="Result",
)
@option(
    "--attempts N",
    "Give up after this many failed runs of CMD, counted over all waiting jobs.",
    type=Between(1, 1000),
    group="Retries",
    default=3,
    show_default=True,
)
@option(
    "--on-failure [next|share]",
    "When CMD fails, the next waiter runs it, or all waiters share its exit status.",
    group="Retries",
    default="next",
    show_default=True,
)
@option(
    "--run-limit D",
    "End CMD after this time; it then counts as failed (124). Default: no limit.",
    to="run_limit_seconds",
    group="Limits",
)
@options.wait
@options.connect_timeout
@option(
    "--ttl D",
    "On etcd and Kubernetes, the time after which the caller that runs CMD counts as dead if "
    "it stopped renewing its lease. Default: the backend's.",
    to="ttl_seconds",
    group="Limits",
)
@option(
    "--result-file FILE",
    "The file to which CMD writes its result. It is removed before CMD begins and must not be "
    "a symbolic link. CMD's stdout goes to stderr.",
    group="Work",
)
@option("--list", "Show the kept results.", to="lists", group="Output")
@option(
    "--show KEY|ID",
    "Print the kept result of KEY, or of an id that --list shows.",
    completed_from="work_keys",
    group="Output",
)
@option(
    "--forget KEY|ID",
    "Forget the kept result of KEY, or of an id that --list shows; refused (77) while CMD runs.",
    completed_from="work_keys",
    group="Output",
)
@options.json_output
@options.quiet
@options.backend
def command(
    *,
    words: tuple[str, ...],
    texts: tuple[str, ...],
    files: tuple[str, ...],
    keep_seconds: float,
    verify: str | None,
    attempts: int,
    on_failure: Literal["next", "share"],
    run_limit_seconds: float | None,
    ttl_seconds: float | None,
    result_file: str | None,
    lists: bool,
    show: str | None,
    forget: str | None,
    as_json: bool,
    backend: str | None,
    argv: tuple[str, ...],
    **given: Any,
) -> int:
    """Run a command once across many jobs and share its output.

    The first caller runs CMD. All others wait. Once CMD exits 0, each caller prints CMD's stdout,
    and so do later callers within --keep. CMD's stderr is passed on. CMD's stdin is empty,
    unless leasectl's own stdin is a terminal, which CMD then gets. If CMD fails, the next waiter
    prints the last lines that the failed run wrote to stderr, and runs CMD again; the caller whose
    run failed waits for the new result, too. If the caller that runs CMD is killed, CMD is ended,
    and the next waiter runs it from the beginning. Signals are forwarded to CMD. After TERM, INT,
    HUP or QUIT its result isn't kept, even if CMD exits with 0.

    CMD may itself call leasectl once for other work. It must not request its own work, either
    directly or through the CMD of other work: it would wait for itself, and is refused (64).

    KEY and all inputs identify the work; CMD and the environment don't. KEY is any printable text
    of up to 200 characters. A result has at most 1 MiB, 180 KiB on kubernetes://. While the work
    runs, --keep, --attempts, --on-failure and --run-limit of the caller that began it apply to all.

    If no run of CMD succeeds, a caller that ran CMD exits with the code of its own run, and any
    other caller with that of the last run.
    Other exit codes: 75: not done within --wait; 79: the lease was lost, and CMD was ended; 65: the
    result is too large; 73: the result would leave no room on the disk of the state directory.

    \b
    Examples:
      leasectl once import-4.21 -- sh -c 'echo imported >import.log; date'
      tag=$(leasectl once tag --input 4.21 --keep 7d -- date +%Y%m%d-%H%M%S)
      leasectl once import-4.21 --verify 'test -e import.log' -- date
      leasectl once --list
      leasectl once --forget import-4.21
    """
    waits = WaitOptions.pop(given)
    wanted = [bool(words or argv), lists, show is not None, forget is not None]
    if sum(wanted) != 1:
        problem = "give only one of these" if any(wanted) else "nothing to do; give one of these"
        raise InvalidRequest(
            f"{problem}: a command ({_WITH_SEPARATOR}), --list, --show KEY or --forget KEY"
        )
    if not words and not argv:
        _refuse_meaningless("lists" if lists else "forget" if show is None else "show")
        from leasectl.cli.rendering import once_results

        if show is not None:
            work = _work(show, texts, files)
            once_results.print_one(work, backend, as_json=as_json, quiet=waits.quiet)
        elif forget is not None:
            once_results.forget(_work(forget, texts, files), backend, quiet=waits.quiet)
        else:
            once_results.print_all(backend, as_json=as_json)
        return 0
    if as_json:
        raise InvalidRequest("--json needs --list or --show")
    if not argv:
        raise InvalidRequest(f"no command; put it after --, like {_WITH_SEPARATOR}")
    if len(words) != 1:
        raise InvalidRequest(f"give one KEY before --, like {_WITH_SEPARATOR}")

    asked = Asked(
        _work(words[0], texts, files),
        argv,
        Terms(keep_seconds, attempts, on_failure == "share", run_limit_seconds),
        ttl_seconds=ttl_seconds,
        verify=verify,
        result_file=result_file,
        environ=given_environment(),
    )
    check_terms(asked.terms)
    if asked.result_file == "":
        raise InvalidRequest("--result-file is empty")
    check_request(asked.request, waits.wait_seconds, backend)
    return _do(asked, waits, backend)


def _refuse_meaningless(mode: str) -> None:
    """Refuse the options of a run with --list, --show and --forget."""
    ctx = click.get_current_context()
    options = (each for each in ctx.command.params if isinstance(each, click.Option))
    said = {str(option.name): max(option.opts, key=len) for option in options}
    for name, written in said.items():
        means_something = name in (mode, "quiet", "backend", *_WITH_RESULTS[mode])
        if was_given(name, ctx) and not means_something:
            raise InvalidRequest(f"{written} can't be combined with {said[mode]}; omit it")


def _work(key: str, texts: tuple[str, ...], files: tuple[str, ...]) -> Work:
    check_key(key)
    contents = [(os.path.basename(each), read_bytes(each, "--input-file")) for each in files]
    return work_of(key, map(os.fsencode, texts), contents)


def _do(asked: Asked, waits: WaitOptions, backend: str | None) -> int:
    from leasectl.once.doing import Once

    callers = watch_callers()
    service = open_service(backend)
    with Waiting(asked.request, waits, callers, lambda: None) as waiting:
        outcome = Once(service, asked, warn=waiting.line.warn).result(waiting.patience)
    if outcome.content is not None and outcome.kept is not None:
        if not outcome.is_ours and not waits.quiet:
            from leasectl.cli.rendering.once_results import whose

            note(whose(outcome.kept))
        emit_bytes(outcome.content)
        return 0
    if outcome.ending is None:
        return _say_failed(asked, outcome, quiet=waits.quiet)
    if outcome.ending.signum is not None:
        die_of(outcome.ending.signum)
    return outcome.ending.code or 0


def _say_failed(asked: Asked, outcome: Outcome, *, quiet: bool) -> int:
    if not quiet:
        note(
            f"work {asked.work.title} failed {counted(outcome.times, 'time')} while this command "
            f"waited; the last exit code was {outcome.status}"
        )
        for each in outcome.lines.splitlines():
            note(f"| {each}")
    return outcome.status or 1
